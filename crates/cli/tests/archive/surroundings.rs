//! Unlucky surroundings: several processes at once, what killed ones leave, damaged settings, files
//! that are none, and others who must not read what is private.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use tapdex_engine::testing::forge_note;

use super::*;

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}

#[test]
fn two_processes_make_one_archive() {
    let place = Place::new();
    place.words("gen -c 50 -w a.pcap").done();
    place.words("gen -c 70 --seed 2 -w b.pcap").done();
    for round in 0..25 {
        let start = |words: &str| {
            let words: Vec<&str> = words.split_whitespace().collect();
            place.command(&words).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let both = [
            start("index -q -j 1 -o new --sums a.pcap"),
            start("index -q -j 1 -o new --codec wah b.pcap"),
        ];
        for child in both {
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "round {round}: {said}");
        }
        let count = place.words("search -r new --count").done();
        assert_eq!(count.trim_end(), "120");
        // What one of them has asked for is not lost by the other.
        let settings = std::fs::read_to_string(place.path("new/archive.toml")).unwrap();
        assert!(settings.contains("sums = true") && settings.contains("wah"), "{settings}");
        assert!(!place.path("new/.archive.toml.tmp").exists());
        std::fs::remove_dir_all(place.path("new")).unwrap();
    }
}

#[test]
fn half_written_settings_are_removed() {
    let place = indexed();
    let half = place.path("tapdex-archive/.archive.toml.tmp");
    for words in ["index -q a.pcap", "repair"] {
        std::fs::write(&half, "version = 1\nord").unwrap();
        // It is not ours.
        let other = place.path("tapdex-archive/.my-notes.toml.tmp");
        std::fs::write(&other, "notes").unwrap();
        place.words(words).done();
        assert!(!half.exists() && other.exists(), "{words}");
    }
}

#[test]
fn damaged_settings_are_written_again() {
    let place = Place::new();
    place.words("gen -c 100 -w a.pcap").done();
    let path = place.path("tapdex-archive/archive.toml");
    for (options, expected) in [
        ("--codec wah", "version = 1\ncodec = \"wah\"\n"),
        ("--codec auto", "version = 1\ncodec = \"auto\"\n"),
    ] {
        place.words(&format!("index -q --force {options} a.pcap")).done();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
        let long = "#".repeat(1 << 17);
        for damage in [Some("version = 1\nord"), Some(""), Some("\u{0}\u{0}"), Some(&long), None] {
            std::fs::remove_file(&path).unwrap();
            if let Some(text) = damage {
                std::fs::write(&path, text).unwrap();
                let said = place.words("search --count").failed(2);
                assert!(said.contains("tapdex repair writes it again"), "{said}");
            }
            let said = place.words("repair").failed(0);
            assert!(said.contains("archive.toml: written again: codec "), "{said}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
        }
        // A link to settings is none, and is not followed.
        std::fs::rename(&path, place.path("elsewhere.toml")).unwrap();
        std::os::unix::fs::symlink(place.path("elsewhere.toml"), &path).unwrap();
        place.words("repair").done();
        assert!(path.symlink_metadata().unwrap().is_file());
        assert_eq!(place.count(""), 100);
    }
    // What a later version has written is not damaged.
    std::fs::write(&path, "version = 2\nnew = 1\n").unwrap();
    place.words("repair").failed(2);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "version = 2\nnew = 1\n");
    // A folder without anything in it is no archive.
    std::fs::create_dir(place.path("empty")).unwrap();
    place.words("repair -r empty").failed(2);
    assert!(place.path("empty").read_dir().unwrap().next().is_none());
}

/// Older versions had a choice of orders, and kept it in the settings.
#[test]
fn the_order_of_older_settings_has_no_effect() {
    let place = indexed();
    let before = place.count("");
    let path = place.path("tapdex-archive/archive.toml");
    for order in ["arrival", "flow"] {
        let text = format!("version = 1\norder = \"{order}\"\ncodec = \"auto\"\n");
        std::fs::write(&path, text).unwrap();
        place.words("index -q --force a.pcap").done();
        assert_eq!(place.count(""), before);
        let info = place.words("info --json --segments").done();
        assert!(info.contains("\"order\":\"sorted\""), "{info}");
        assert!(!place.words("info").done().contains("order"));
    }
    // Settings that are written again leave it out.
    place.words("index -q --codec wah a.pcap").done();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "version = 1\ncodec = \"wah\"\n");
    let said = place.words("index --order flow a.pcap").failed(2);
    assert!(said.contains("unexpected argument '--order'"), "{said}");
}

#[test]
fn what_is_no_file_is_refused_at_once() {
    let commands = [
        "info",
        "search --count tcp",
        "extract --force -w out.pcapng",
        "verify --quick",
        "verify",
        "repair --quick",
        "repair",
    ];
    let place = indexed();
    place.sh("cp -a tapdex-archive sound; cp a.pcap kept.pcap").done();
    let name = |folder: &str, start: &str| {
        let entries = place.path("sound").join(folder).read_dir().unwrap();
        let mut names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        format!("tapdex-archive/{folder}/{}", names.find(|n| n.starts_with(start)).unwrap())
    };
    let index = name("segments", "a.pcap");
    let recording = "tapdex-archive/packets/rec-0000000001-20200101T000000Z.pcapng";
    let unfinished = "tapdex-archive/packets/.rec-0000000001-20200101T000000Z.pcapng.part";
    for target in ["tapdex-archive/archive.toml", "a.pcap", &index, recording, unfinished] {
        for make in ["mkfifo", "mkdir", "ln -s /dev/zero"] {
            let place = &place;
            place.sh(&format!("rm -rf {target}; mkdir -p tapdex-archive/packets; {make} {target}"));
            for words in commands {
                // A hang is the end of the test, after a time that no command takes.
                let ended = place.sh(&format!("timeout -s KILL 300 tapdex {words}"));
                assert!(ended.code.is_some_and(|c| c <= 5), "{make} {target}: {words}: {ended:?}");
                // Settings are written again, and an index as well.
                let mends = words.starts_with("repair") && target.starts_with("tapdex-archive");
                let is_fine = mends || target == unfinished;
                assert!(ended.code != Some(0) || is_fine, "{make} {target}: {words}: {ended:?}");
                if words == "repair --quick" {
                    place.sh(&format!("rm -rf {target}; {make} {target}"));
                }
            }
            place.sh(
                "rm -rf tapdex-archive a.pcap; cp -a sound tapdex-archive; cp -a kept.pcap a.pcap",
            );
        }
    }
}

#[test]
fn what_is_private_stays_private() {
    let place = Place::new();
    set_mode(place.0.path(), 0o755);
    place.words("gen -c 100 -w private.pcap").done();
    place.words("gen -c 100 --seed 2 -w public.pcap").done();
    place.sh("cp private.pcap packed.pcap; gzip packed.pcap; umask 0; cp private.pcap group.pcap");
    for (name, rights) in
        [("private.pcap", 0o600), ("packed.pcap.gz", 0o400), ("public.pcap", 0o644)]
    {
        set_mode(&place.path(name), rights);
    }
    // Whatever the user lets others do with new files.
    let index = |words: &str| place.sh(&format!("umask 0; tapdex index -q {words}")).done();
    index("private.pcap packed.pcap.gz");
    index("- --name stream < private.pcap");
    for path in files(&place.path("tapdex-archive")) {
        let is_settings = path.ends_with("archive.toml");
        assert!(is_settings || mode(&path) & 0o077 == 0, "{}: {:o}", path.display(), mode(&path));
    }
    assert_eq!(files(&place.path("tapdex-archive/packets")).len(), 2);
    index("-o public public.pcap");
    index("-o public - --name stream < public.pcap");
    for folder in ["segments", "packets"] {
        for path in files(&place.path("public").join(folder)) {
            assert_eq!(mode(&path), 0o640, "{}", path.display());
        }
    }
    // Extracts: as the capture that the fewest may read, of those that packets come from.
    index("-o both public.pcap private.pcap");
    let extract = |archive: &str, filter: &str| {
        let words = format!("umask 0; tapdex extract -r {archive} --force -w out.pcap {filter}");
        place.sh(&words).done();
        mode(&place.path("out.pcap"))
    };
    assert_eq!(extract("tapdex-archive", ""), 0o600);
    assert_eq!(extract("both", ""), 0o600);
    assert_eq!(extract("public", "less 1"), 0o666);
    std::fs::remove_dir_all(place.path("public/packets")).unwrap();
    place.sh("rm public/segments/stream*").done();
    assert_eq!(extract("public", ""), 0o644);
    others_cannot_read(&place);
}

/// The last part of it needs another user.
fn others_cannot_read(place: &Place) {
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    let reads = |user: &str, path: &Path| {
        let script = format!("{user} cat {} > /dev/null", path.display());
        place.sh(&script).code == Some(0)
    };
    if !is_root || !reads(nobody, &place.path("public.pcap")) {
        println!("skipped: only root can be somebody else, with setpriv, in a folder for all");
        return;
    }
    for path in files(&place.path("tapdex-archive")) {
        let is_settings = path.ends_with("archive.toml");
        assert!(is_settings || !reads(nobody, &path), "{}", path.display());
    }
    // Of a capture that a group may read, an index of another group is not for that group.
    let group = place.path("group.pcap");
    set_mode(&group, 0o640);
    chown(&group, None, Some(65_533)).unwrap();
    place.words("index -q -o group group.pcap").done();
    place.words("extract -r group -w out-group.pcap").done();
    let made =
        files(&place.path("group/segments")).into_iter().chain([place.path("out-group.pcap")]);
    for path in made {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    // One of the same group is.
    let as_group = "setpriv --regid=65533 --clear-groups tapdex";
    place.sh(&format!("umask 0; {as_group} index -q -o same group.pcap")).done();
    let member = "setpriv --reuid=65534 --regid=65533 --clear-groups";
    for path in files(&place.path("same/segments")) {
        assert!(mode(&path) == 0o640 && reads(member, &path) && !reads(nobody, &path));
    }
}

/// A note that names a file outside, as if it were our copy of a capture that has changed since:
/// indexing that capture again once removed the file.
#[test]
fn a_note_cannot_have_a_file_removed() {
    let place = indexed();
    let segments = place.path("tapdex-archive/segments");
    let note = std::fs::read(&place.index_files()[0]).unwrap();
    let absolute = place.path("precious").display().to_string();
    let escaped = "..%2f..%2fprecious";
    for path in ["../../precious", &absolute, escaped, "../packets/../../precious"] {
        for command in ["index -q --force a.pcap", "index -q a.pcap", "repair", "repair --quick"] {
            std::fs::write(place.path("precious"), "precious").unwrap();
            let forged = forge_note(&note, |text| {
                let lines = text.lines().map(|line| match line.split(" = ").next() {
                    Some("path") => format!("path = {path:?}\norigin = \"../../a.pcap\""),
                    Some("len") => "len = 1".to_owned(),
                    _ => line.to_owned(),
                });
                lines.collect::<Vec<_>>().join("\n")
            });
            let index = segments.join("z-0011223344556677-0000.tdx");
            std::fs::write(&index, forged.unwrap()).unwrap();
            place.words(command);
            assert_eq!(std::fs::read(place.path("precious")).unwrap(), b"precious", "{path}");
            std::fs::remove_file(index).ok();
        }
    }
    // What is ours is removed all the same.
    place.sh("cp a.pcap c.pcap; gzip c.pcap; tapdex index -q c.pcap.gz").done();
    let copies = || files(&place.path("tapdex-archive/packets")).len();
    assert_eq!(copies(), 1);
    place.sh("touch -d 2001-01-01 c.pcap.gz; tapdex index -q c.pcap.gz").done();
    assert_eq!(copies(), 1);
}

/// Nothing is written through a link, whatever it has in the place of.
#[test]
fn links_are_not_written_through() {
    let place = indexed();
    place.sh("tapdex record -q -w tapdex-archive --limit 100% -i - < a.pcap").done();
    let recording = files(&place.path("tapdex-archive/packets")).remove(0);
    let mut bytes = std::fs::read(recording).unwrap();
    bytes.truncate(bytes.len() - 99);
    let precious = place.path("precious.pcapng");
    let part = place.path("tapdex-archive/packets/.rec-0000000009-20200101T000000Z.pcapng.part");
    let links: [fn(&Path, &Path) -> std::io::Result<()>; 2] =
        [|from, to| std::os::unix::fs::symlink(from, to), |from, to| std::fs::hard_link(from, to)];
    for link in links {
        std::fs::write(&precious, &bytes).unwrap();
        link(&precious, &part).unwrap();
        // It would be cut behind its last packet.
        let said = place.words("repair").failed(3);
        assert!(said.contains(".pcapng.part") && said.contains("link"), "{said}");
        assert_eq!(std::fs::read(&precious).unwrap(), bytes);
        std::fs::remove_file(&part).unwrap();
    }
    // The name under which an index comes to be.
    let index = &place.index_files()[0];
    let name = index.file_name().unwrap().to_str().unwrap();
    let hidden = index.with_file_name(format!(".{name}.tmp"));
    std::os::unix::fs::symlink(place.path("made"), &hidden).unwrap();
    let said = place.words("index -q --force a.pcap").err;
    assert!(said.contains("is a link"), "{said}");
    assert!(!place.path("made").exists() && hidden.is_symlink());
    std::fs::remove_file(hidden).unwrap();
    // All of the folder.
    place.sh("mv tapdex-archive/segments outside; ln -s ../outside tapdex-archive/segments").done();
    let before = files(&place.path("outside"));
    place.words("gen -c 10 --seed 9 -w new.pcap").done();
    let said = place.words("index -q new.pcap").err;
    assert!(said.contains("segments is a link, or no folder"), "{said}");
    assert_eq!(files(&place.path("outside")), before);
    // All of the archive is another matter: the user has named it.
    place.sh("rm tapdex-archive/segments; mv outside tapdex-archive/segments").done();
    place.sh("mv tapdex-archive real; ln -s real tapdex-archive").done();
    place.words("index -q new.pcap").done();
}
