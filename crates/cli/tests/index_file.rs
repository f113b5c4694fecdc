//! `tapdex index-file` as people use it: the real binary, whole outputs and exit codes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod folder;

use std::path::Path;

use folder::Folder;
use tapdex_bitmap::ALL_CODECS;
use tapdex_bitmap::sample::Random;

const FLOWS: &str = "src,port,len\n10.0.0.1,443,1500\n10.0.0.2,53,80\n10.0.0.1,53,60\n";

/// A folder with a small table and its index.
fn flows() -> Folder {
    let folder = Folder::new();
    folder.write("flows.csv", FLOWS);
    folder.run("build flows.csv -o flows.tdx").done();
    folder
}

mod build {
    use super::*;

    #[test]
    fn says_what_it_wrote_and_leaves_nothing_else() {
        let folder = Folder::new();
        folder.write("flows.csv", FLOWS);
        let ended = folder.run("build flows.csv -o flows.tdx");
        let len = folder.read("flows.tdx").len();
        let a_row = len as f64 / 3.0;
        let expected = format!("wrote flows.tdx: 3 rows, 3 fields, {len} bytes, {a_row:.2} bytes");
        assert!(ended.err.starts_with(&format!("tapdex: {expected} per row, ")), "{}", ended.err);
        assert_eq!((ended.code, ended.out.as_str()), (Some(0), ""));
        assert_eq!(folder.names(), ["flows.csv", "flows.tdx"]);
    }

    #[test]
    fn every_way_to_write_csv_gives_the_same_file() {
        let folder = flows();
        let expected = folder.read("flows.tdx");
        for (n, text) in [
            FLOWS.trim_end().to_owned(),
            FLOWS.replace('\n', "\r\n"),
            format!("\u{feff}{}", FLOWS.replace('\n', "\n\n")),
            FLOWS.replace(',', " ,\t"),
            FLOWS.replace("443", "\"0x1bb\"").replace("src", "\"src\""),
            FLOWS.replace("10.0.0.2", "167772162"),
        ]
        .into_iter()
        .enumerate()
        {
            folder.write("other.txt", &text);
            folder.run("build --csv other.txt -o other.tdx --force").done();
            assert_eq!(folder.read("other.tdx"), expected, "{n}");
            folder.run_with("build - -o other.tdx --force", text).done();
            assert_eq!(folder.read("other.tdx"), expected, "{n}");
        }
    }

    #[test]
    fn tables_are_put_one_below_the_other() {
        let folder = flows();
        folder.write("a.csv", "src,port,len\n10.0.0.1,443,1500\n");
        folder.write("b.CSV", "len,src,port\n80,10.0.0.2,53\n60,10.0.0.1,53\n");
        folder.run("build a.csv b.CSV -o both.tdx").done();
        assert_eq!(folder.read("both.tdx"), folder.read("flows.tdx"));
        folder.write("c.csv", "len,src,port,x\n80,10.0.0.2,53,1\n");
        folder.run("build a.csv c.csv -o c.tdx").failed(
            2,
            "cannot read c.csv:1: column 'x' is not in the first table: select columns with \
             --field",
        );
        folder.run("build a.csv c.csv -o c.tdx --field len --field port").done();
        assert_eq!(folder.rows("c.tdx port=53"), [1]);
    }

    #[test]
    fn bytes_give_the_same_file_as_text() {
        let folder = flows();
        let addresses = [0x0A00_0001_u32, 0x0A00_0002, 0x0A00_0001];
        folder.write("src", addresses.map(u32::to_le_bytes).as_flattened());
        folder.write("port", [443_u16, 53, 53].map(u16::to_le_bytes).as_flattened());
        folder.write("len", [1500_u16, 80, 60].map(u16::to_le_bytes).as_flattened());
        let fields = "--field src:32=src --field port:16=port --field len:16=len";
        folder.run(&format!("build -o raw.tdx {fields}")).done();
        assert_eq!(folder.read("raw.tdx"), folder.read("flows.tdx"));
    }

    #[test]
    fn fields_are_picked_and_widths_given() {
        let folder = flows();
        let fields = "--field len:32/16:wah --field src:32 --field port:16/8:hipes";
        folder.run(&format!("build flows.csv -o x.tdx {fields} --w 9 --codec masc")).done();
        let info = folder.run("info x.tdx").done();
        let expected = "rows 3, order arrival, format version 1

field      bits  codec      keys  bytes  bytes a row  percent
len          32                      48       16.000      1.7
  digit 0    16  wah           1     14        4.667      0.5
  digit 1    16  wah           3     34       11.333      1.2
src          32                      70       23.333      2.5
  digit 0     8  masc          1     14        4.667      0.5
  digit 1     8  masc          1     14        4.667      0.5
  digit 2     8  masc          1     14        4.667      0.5
  digit 3     8  masc          2     28        9.333      1.0
port         16                     304      101.333     11.0
  digit 0     8  hipes w 9     2    152       50.667      5.5
  digit 1     8  hipes w 9     2    152       50.667      5.5
";
        assert!(info.starts_with(expected), "{info}");
    }

    #[test]
    fn widths_are_found_from_the_values() {
        let folder = Folder::new();
        let header = "a,b,c,d,e,mac,ip4,ip6\n";
        let first = "0,0,0,0,0,00:00:00:00:00:01,0.0.0.1,::1\n";
        let second = "255,256,65536,4294967296,0x10000000000000000,00:00:00:00:00:02,0,0\n";
        folder.write("t.csv", format!("{header}{first}{second}"));
        folder.run("build t.csv -o t.tdx").done();
        let json = folder.run("info t.tdx --json").done();
        for (name, bits, columns) in [
            ("a", 8, 1),
            ("b", 16, 1),
            ("c", 32, 4),
            ("d", 64, 8),
            ("e", 128, 16),
            ("mac", 48, 6),
            ("ip4", 32, 4),
            ("ip6", 128, 16),
        ] {
            let part = format!(r#"{{"field":"{name}","bits":{bits},"columns":{columns},"#);
            assert!(json.contains(&part), "{part}\n{json}");
        }
        assert_eq!(folder.rows("t.tdx e=0x10000000000000000 mac=00:00:00:00:00:02 ip6=::"), [1]);
    }

    #[test]
    fn every_codec_can_be_asked_for() {
        let folder = flows();
        for codec in ALL_CODECS {
            folder.run(&format!("build flows.csv -o x.tdx --force --codec {codec}")).done();
            assert_eq!(folder.rows("x.tdx src=10.0.0.1 port=53"), [2], "{codec}");
            let json = folder.run("info x.tdx --json").done();
            let of_columns = json.matches(&format!(r#""codec":"{codec}""#)).count();
            assert_eq!(of_columns, json.matches("\"codec\"").count(), "{json}");
        }
        folder.run("build flows.csv -o x.tdx --force --codec zip").failed(
            2,
            "invalid value 'zip' for '--codec <NAME>'\n  [possible values: wah, plwah, \
             plwah-plus, compax, compax2, secompax, masc, hipes, roaring, auto]\n\n\
             For more information, try '--help'.",
        );
        folder
            .run("build flows.csv -o x.tdx --force --w 9")
            .failed(2, "--w applies to hipes only, but no field uses it");
    }

    #[test]
    fn threads_do_not_change_the_file() {
        let folder = Folder::new();
        let mut random = Random::new(3);
        let mut text = "a,b\n".to_owned();
        for _ in 0..20_000 {
            text += &format!("{},{}\n", random.below(70_000), random.below(3));
        }
        folder.write("t.csv", text);
        folder.run("build t.csv -o one.tdx --threads 1").done();
        for threads in [0, 2, 7] {
            folder.run(&format!("build t.csv -o t.tdx --force --threads {threads}")).done();
            assert_eq!(folder.read("t.tdx"), folder.read("one.tdx"));
        }
    }

    #[test]
    fn bad_values_are_shown_with_their_place() {
        let folder = Folder::new();
        for (value, why) in [
            ("4x3", "'4x3': expected a decimal digit at character 2"),
            ("", "'': expected a value at character 1"),
            ("-1", "'-1': expected a decimal digit at character 1"),
            ("0x", "'0x': expected a hexadecimal digit at character 3"),
            ("65536", "'65536': the value needs 17 bits, but the field has 16"),
            (
                "10.0.0.1",
                "'10.0.0.1': an IPv4 address needs a field of 32 bits, but this one has 16",
            ),
            ("::1", "'::1': an IPv6 address needs a field of 128 bits, but this one has 16"),
            (
                "\x1b[31m0123456789012345678901234567890123456789",
                "'\\u{1b}[31m01234567890123456789012345678901234..': expected a decimal digit at \
                 character 1",
            ),
        ] {
            folder.write("t.csv", format!("a,port\n1,2\n\n3,{value}\n4,5\n"));
            let ended = folder.run("build t.csv -o t.tdx --field port:16");
            ended.failed(2, &format!("cannot read t.csv:4:port: {why}"));
            assert_eq!(folder.names(), ["t.csv"]);
        }
        folder.run_with("build - -o t.tdx", "a b\nx\n").failed(
            2,
            "cannot read standard input:2:a b: 'x': expected a decimal digit at character 1",
        );
    }

    #[test]
    fn a_field_holds_one_kind() {
        let folder = Folder::new();
        folder.write("t.csv", "ip\n10.0.0.1\n::1\n");
        folder.run("build t.csv -o t.tdx").failed(
            2,
            "column 'ip' mixes an IPv4 address with a value of 128 bits, but a field holds one \
             kind",
        );
    }

    #[test]
    fn lines_have_as_many_columns_as_the_first() {
        let folder = Folder::new();
        for (line, found) in [("1", 1), ("1,2,3", 3), ("1,2,", 3), ("\"1,2\"", 1)] {
            folder.write("t.csv", format!("a,b\n1,2\n{line}\n3,4\n"));
            let expected = "expected 2 as in the first line";
            folder
                .run("build t.csv -o t.tdx")
                .failed(2, &format!("cannot read t.csv:3: {found} columns, {expected}"));
        }
    }

    #[test]
    fn columns_have_to_be_there_once() {
        let folder = flows();
        folder
            .run("build flows.csv -o x.tdx --field dst:32")
            .failed(2, "cannot read flows.csv:1: no column 'dst'; there are: src, port, len");
        folder
            .run("build flows.csv -o x.tdx --time ts")
            .failed(2, "cannot read flows.csv:1: no column 'ts'; there are: src, port, len");
        folder
            .run("build flows.csv -o x.tdx --sort-by src,dst")
            .failed(2, "--sort-by: no field 'dst', expected one of: src, port, len");
        folder
            .run_with("build - -o x.tdx", "a,b,a\n")
            .failed(2, "cannot read standard input:1: there are two columns 'a'");
        folder
            .run_with("build - -o x.tdx", "a,,b\n")
            .failed(2, "cannot read standard input:1: a column has no name");
        folder
            .run_with("build - -o x.tdx", b"a,\xFF\n")
            .failed(2, "cannot read standard input:1: the column name '\u{fffd}' is not UTF-8");
    }

    #[test]
    fn tables_without_fields_are_refused() {
        let folder = flows();
        folder
            .run_with("build - -o x.tdx", "")
            .failed(2, "cannot read standard input: the line with the column names is missing");
        folder
            .run_with("build - -o x.tdx --time ts", "ts\n1\n")
            .failed(2, "cannot read standard input:1: there is no column to index");
        folder.run("build -o x.tdx").failed(
            2,
            "no table: give a CSV file, - for standard input, or a file for each --field",
        );
        folder.write("ts", [0; 8]);
        folder
            .run("build -o x.tdx --field ts:64=ts --time ts")
            .failed(2, "there is no field to index");
    }

    #[test]
    fn flags_that_do_not_go_together_are_refused() {
        let folder = flows();
        folder.write("a", [1, 2]);
        for (args, message) in [
            ("flows.tdx", "'flows.tdx' does not end in .csv: give --csv if it is CSV"),
            ("flows.csv --field a:8=a", "give tables, or a file for each --field, not both"),
            ("--field a:8=a --field b:8", "--field: 'b' has no =FILE, but other fields do"),
            ("--field a=a", "--field: 'a' has a file and needs :BITS"),
            ("--field a:8=a --field a:16=a", "--field: 'a' is given twice"),
            ("--field a:8=a --time ts", "--time: there is no --field 'ts'"),
            ("--field a:8=a --field b:8=a --time b", "--time: 'b' has 8 bits, expected 64"),
        ] {
            folder.run(&format!("build -o x.tdx {args}")).failed(2, message);
        }
        for (field, why) in [
            ("a:12", "'12' bits: expected a multiple of 8 from 8 to 128"),
            ("a:136", "'136' bits: expected a multiple of 8 from 8 to 128"),
            ("a:8/4", "digits of '4' bits: expected 8 or 16"),
            (
                "a:8:zip",
                "unknown codec 'zip', expected one of: wah, plwah, plwah-plus, compax, compax2, \
                 secompax, masc, hipes, roaring, auto",
            ),
            (":8", "expected NAME[:BITS[/DIGITS]][:CODEC][=FILE]"),
        ] {
            folder.run(&format!("build flows.csv -o x.tdx --field {field}")).failed(
                2,
                &format!(
                    "invalid value '{field}' for '--field <FIELD>': {why}\n\n\
                     For more information, try '--help'."
                ),
            );
        }
    }

    #[test]
    fn files_of_bytes_have_the_same_number_of_whole_values() {
        let folder = Folder::new();
        folder.write("a", [0; 6]);
        folder.write("b", [0; 4]);
        folder
            .run("build -o x.tdx --field a:16=a --field b:8=b")
            .failed(2, "the files have different numbers of rows: a has 3, b has 4");
        folder
            .run("build -o x.tdx --field a:32=a")
            .failed(2, "cannot read a: 6 bytes, not a multiple of 4");
        assert_eq!(folder.names(), ["a", "b"]);
    }

    #[test]
    fn what_cannot_be_read_is_reported() {
        let folder = flows();
        let missing = "No such file or directory (os error 2)";
        for args in ["no.csv", "--field a:8=no.csv"] {
            let message = format!("cannot open no.csv: {missing}");
            folder.run(&format!("build -o x.tdx {args}")).failed(4, &message);
        }
        std::fs::create_dir(folder.path("folder.csv")).unwrap();
        for args in ["folder.csv", "--field a:8=folder.csv"] {
            let message = "cannot read folder.csv: Is a directory (os error 21)";
            folder.run(&format!("build -o x.tdx {args}")).failed(4, message);
        }
        folder
            .run("build flows.csv -o no/x.tdx")
            .failed(4, &format!("cannot write no/x.tdx: {missing}"));
    }

    #[test]
    fn a_file_is_replaced_only_if_asked_for() {
        let folder = flows();
        let before = folder.read("flows.tdx");
        folder.write("other.csv", "a\n1\n");
        let refused = "flows.tdx exists: give --force to replace it";
        folder.run("build other.csv -o flows.tdx").failed(2, refused);
        assert_eq!(folder.read("flows.tdx"), before);
        folder.run("build other.csv -o flows.tdx --force").done();
        assert_ne!(folder.read("flows.tdx"), before);
        folder
            .run("build other.csv -o ./other.csv --force")
            .failed(2, "other.csv is an input and cannot be replaced");
        // What a killed build has left behind is no hindrance.
        folder.write(".flows.tdx.tmp", [0; 100_000]);
        folder.run("build flows.csv -o flows.tdx --force").done();
        assert_eq!(folder.read("flows.tdx"), before);
        assert_eq!(folder.names(), ["flows.csv", "flows.tdx", "other.csv"]);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_second_build_of_the_same_file_is_refused() {
        let folder = flows();
        let held = std::fs::File::create(folder.path(".x.tdx.tmp")).unwrap();
        held.lock().unwrap();
        folder
            .run("build flows.csv -o x.tdx")
            .failed(4, ".x.tdx.tmp is being written by another process");
        drop(held);
        folder.run("build flows.csv -o x.tdx").done();
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_leaves_the_old_file() {
        let folder = flows();
        let before = folder.read("flows.tdx");
        let mut random = Random::new(1);
        // What is less than a buffer comes to the disk at the end, the rest before.
        for (rows, operation) in [(100_000, "sync"), (3_000_000, "write")] {
            let bytes: Vec<u8> = (0..rows).map(|_| random.number().to_le_bytes()[0]).collect();
            folder.write("a", bytes);
            for out in ["flows.tdx", "x.tdx"] {
                let tapdex = env!("CARGO_BIN_EXE_tapdex");
                let build = format!("{tapdex} index-file build -o {out} --force --field a:8=a");
                let output = std::process::Command::new("bash")
                    .args(["-c", &format!("trap '' XFSZ; ulimit -f 8; {build}")])
                    .current_dir(folder.0.path())
                    .output()
                    .unwrap();
                let err = String::from_utf8(output.stderr).unwrap();
                let why = format!("cannot {operation} .{out}.tmp: File too large (os error 27)");
                assert_eq!((output.status.code(), err), (Some(4), format!("tapdex: {why}\n")));
                assert_eq!(folder.names(), ["a", "flows.csv", "flows.tdx"]);
                assert_eq!(folder.read("flows.tdx"), before);
            }
        }
    }

    /// Waits until there is such a file, then sends Ctrl-C to the process.
    #[cfg(unix)]
    fn interrupt(mut child: std::process::Child, file: &Path) -> Option<i32> {
        while !file.exists() {
            assert!(child.try_wait().unwrap().is_none(), "it ended too soon");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let kill = format!("kill -INT {}", child.id());
        assert!(std::process::Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        child.wait().unwrap().code()
    }

    #[test]
    #[cfg(unix)]
    fn ctrl_c_leaves_nothing_behind() {
        let folder = Folder::new();
        let mut random = Random::new(1);
        let bytes: Vec<u8> = (0..4_000_000).flat_map(|_| random.number().to_le_bytes()).collect();
        folder.write("a", bytes);
        // Sixteen columns, of which the first is long done and the last long not.
        let child = std::process::Command::new(env!("CARGO_BIN_EXE_tapdex"))
            .args("index-file build -o x.tdx --threads 1 --codec secompax".split(' '))
            .args(["--field", "a:128=a"])
            .current_dir(folder.0.path())
            .spawn()
            .unwrap();
        assert_eq!(interrupt(child, &folder.path(".x.tdx.tmp")), Some(130));
        assert_eq!(folder.names(), ["a"]);
    }

    #[test]
    fn no_rows_are_a_table_too() {
        let folder = Folder::new();
        folder.write("t.csv", "a,ts");
        folder.write("a", "");
        let ended = folder.run("build t.csv -o t.tdx --time ts --sort-by a");
        assert!(ended.err.contains(": 0 rows, 1 field, "), "{}", ended.err);
        folder.run("build -o raw.tdx --field a:8=a").done();
        for file in ["t.tdx", "raw.tdx"] {
            assert!(folder.run(&format!("verify {file}")).done().starts_with("sound: "));
            let ended = folder.run(&format!("get {file} a=1 a!=1 --any"));
            assert!(ended.err.starts_with("tapdex: matched 0 of 0 rows in "), "{}", ended.err);
            assert_eq!(ended.done(), "");
            let info = folder.run(&format!("info {file}")).done();
            assert!(
                info.contains("\na         8  wah       0      4            -      "),
                "{info}"
            );
        }
    }
}

mod info {
    use super::*;

    #[test]
    fn every_byte_is_accounted_for() {
        let folder = flows();
        folder.run("build flows.csv -o s.tdx --time len --sort-by port --codec wah").done();
        folder.run("info s.tdx").prints(
            "rows 3, order sorted, format version 1
times 60 to 1500

field      bits  codec  keys  bytes  bytes a row  percent
src          32                  66       22.000      3.5
  digit 0     8  wah       1     14        4.667      0.7
  digit 1     8  wah       1     14        4.667      0.7
  digit 2     8  wah       1     14        4.667      0.7
  digit 3     8  wah       2     24        8.000      1.3
port         16  wah       2     24        8.000      1.3

section  bytes  bytes a row  percent
keys        14        4.667      0.7
offsets     48       16.000      2.5
bitmaps     28        9.333      1.5
row map     65       21.667      3.4
times       32       10.667      1.7
rest      1709      569.667     90.1
total     1896      632.000    100.0
",
        );
        let json = folder.run("info s.tdx --json").done();
        let lines: Vec<&str> = json.lines().collect();
        let file = r#"{"rows":3,"order":"sorted","version":1,"bytes":1896,"#;
        assert_eq!(lines[0], format!(r#"{file}"times":{{"first":60,"last":1500}}}}"#));
        let field = r#"{"field":"src","bits":32,"columns":4,"bytes":66,"#;
        assert_eq!(lines[1], format!(r#"{field}"bytes_per_row":22.000,"percent":3.5}}"#));
        let column = r#"{"field":"src","digit":3,"bits":8,"codec":"wah","w":null,"keys":2,"#;
        assert_eq!(
            lines[6],
            format!(r#"{column}"bytes":24,"bytes_per_row":8.000,"percent":1.3}}"#)
        );
        let section = r#"{"section":"row map","bytes":65,"#;
        assert_eq!(lines[11], format!(r#"{section}"bytes_per_row":21.667,"percent":3.4}}"#));
        assert_eq!(lines.len(), 14);
        let bytes = |line: &str| -> u64 {
            let (_, rest) = line.split_once(r#""bytes":"#).unwrap();
            rest.split([',', '}']).next().unwrap().parse().unwrap()
        };
        let sections = json.lines().filter(|line| line.starts_with(r#"{"section":"#));
        let len = folder.read("s.tdx").len() as u64;
        assert_eq!((sections.map(bytes).sum::<u64>(), bytes(lines[0])), (len, len));
    }

    #[test]
    fn odd_names_are_escaped() {
        let folder = Folder::new();
        folder.run_with("build - -o x.tdx", "\u{1b}\"\"\n1\n").done();
        let info = folder.run("info x.tdx").done();
        assert!(info.contains("\n\\u{1b}\\\"\\\"     8  wah"), "{info}");
        let json = folder.run("info x.tdx --json").done();
        assert!(json.contains(r#"{"field":"\u001b\"\"","bits":8,"#), "{json}");
    }
}

mod damage {
    use super::*;

    #[test]
    fn a_sound_file_is_said_to_be_sound() {
        let folder = flows();
        let len = folder.read("flows.tdx").len();
        let expected = format!("sound: 19 sections, 10 bitmaps, {len} bytes\n");
        folder.run("verify flows.tdx").prints(&expected);
    }

    #[test]
    fn every_problem_is_listed() {
        let folder = flows();
        let mut bytes = folder.read("flows.tdx");
        bytes[64] ^= 1;
        bytes[128] ^= 1;
        folder.write("bad.tdx", &bytes);
        let ended = folder.run("verify bad.tdx");
        assert_eq!(ended.err, "tapdex: bad.tdx is damaged: 2 problems\n");
        assert_eq!(ended.code, Some(3));
        let lines: Vec<&str> = ended.out.lines().collect();
        assert!(lines[0].starts_with("keys of column 0 (src digit 0): checksum of "), "{lines:?}");
        assert!(lines[1].starts_with("offsets of column 0 (src digit 0): "), "{lines:?}");
        assert_eq!(lines.len(), 2);
        // Answers that do not need what is damaged are still right, the others are refused.
        assert_eq!(folder.rows("bad.tdx port=53"), [1, 2]);
        let ended = folder.run("get bad.tdx src=10.0.0.1");
        assert_eq!((ended.code, ended.out.as_str()), (Some(3), ""));
        let expected = "tapdex: cannot read bad.tdx: keys of column 0 (src digit 0): checksum of ";
        assert!(ended.err.starts_with(expected), "{}", ended.err);
    }

    #[test]
    fn what_is_cut_off_or_no_index_is_refused() {
        let folder = flows();
        let bytes = folder.read("flows.tdx");
        folder.write("long.tdx", [bytes.as_slice(), b"x"].concat());
        folder.write("empty.tdx", "");
        folder.write("cut.tdx", &bytes[..bytes.len() - 1]);
        folder.write("half.tdx", &bytes[..bytes.len() / 2]);
        for file in ["long.tdx", "empty.tdx", "cut.tdx", "half.tdx", "flows.csv"] {
            for command in ["info", "verify", "get"] {
                let condition = if command == "get" { "port=53" } else { "" };
                let ended = folder.run(&format!("{command} {file} {condition}"));
                let expected = format!("tapdex: {file} cannot be opened: not an index file: ");
                assert!(ended.err.starts_with(&expected), "{}", ended.err);
                assert_eq!((ended.code, ended.out.as_str()), (Some(3), ""));
            }
        }
    }

    #[test]
    fn what_is_not_there_is_another_matter() {
        let folder = Folder::new();
        for args in ["info no.tdx", "verify no.tdx", "get no.tdx a=1"] {
            let message = "cannot open no.tdx: No such file or directory (os error 2)";
            folder.run(args).failed(4, message);
        }
    }
}

mod get {
    use super::*;

    #[test]
    fn rows_are_printed_in_every_form() {
        let folder = flows();
        folder.run("build flows.csv -o t.tdx --time len").done();
        let ended = folder.run("get t.tdx port=53");
        assert!(ended.err.starts_with("tapdex: matched 2 of 3 rows in "), "{}", ended.err);
        assert!(ended.err.ends_with(" ms\n"), "{}", ended.err);
        assert_eq!(ended.out, "1\n2\n");
        folder.run("get t.tdx port=53 --ranges").prints("1-2\n");
        folder.run("get t.tdx port=53 --count").prints("2\n");
        folder.run("get t.tdx port=53 --times").prints("1\t80\n2\t60\n");
        folder
            .run("get flows.tdx port=53 --times")
            .failed(2, "--times: flows.tdx has no times; build it with --time");
        let ended = folder.run("get t.tdx port=53 --count --times");
        assert_eq!(ended.code, Some(2));
        assert!(ended.err.contains("cannot be used with"), "{}", ended.err);
        assert_eq!(folder.run("get t.tdx").code, Some(2));
    }

    #[test]
    fn conditions_are_joined() {
        let folder = flows();
        for (args, expected) in [
            ("port=53", vec![1, 2]),
            ("port!=53", vec![0]),
            ("port=53 src=10.0.0.1", vec![2]),
            ("port=443 src=10.0.0.2", vec![]),
            ("port=443 src=10.0.0.2 --any", vec![0, 1]),
            ("port!=53 src!=10.0.0.1 --any", vec![0, 1]),
            ("port=53,443", vec![0, 1, 2]),
            ("port=53,400..443,1", vec![0, 1, 2]),
            ("port=54..0xFFFF", vec![0]),
            ("src=10.0.0.0/8", vec![0, 1, 2]),
            ("src=0x0a000000/31,1.2.3.4", vec![0, 2]),
            ("src!=10.0.0.0/31", vec![1]),
            ("src=1.2.3.4/0", vec![0, 1, 2]),
            ("src=10.0.0.2..10.0.0.9", vec![1]),
        ] {
            assert_eq!(folder.rows(&format!("flows.tdx {args}")), expected, "{args}");
        }
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_tapdex"));
        let args = ["index-file", "get", "flows.tdx", " port = 53 , 1 .. 9 ", "len != 80"];
        let output = command.args(args).current_dir(folder.0.path()).output().unwrap();
        assert_eq!(output.stdout, b"2\n");
    }

    #[test]
    fn names_with_signs_in_them_can_be_asked_for() {
        let folder = Folder::new();
        folder.run_with("build - -o x.tdx", "a,a=1,b!\n1,7,2\n5,8,3\n").done();
        assert_eq!(folder.rows("x.tdx a=5"), [1]);
        assert_eq!(folder.rows("x.tdx a=1=7"), [0]);
        assert_eq!(folder.rows("x.tdx b!=2"), [0]);
        assert_eq!(folder.rows("x.tdx b!!=2"), [1]);
    }

    #[test]
    fn bad_conditions_are_shown_with_a_mark() {
        let folder = flows();
        for (condition, character, what) in [
            ("dst=1", 1, "no field 'dst', expected one of: src, port, len"),
            ("port", 5, "expected = or != and a value"),
            ("port<5", 7, "expected = or != and a value"),
            ("port!5", 5, "expected = or != and a value"),
            ("port=", 6, "expected a value"),
            ("port==5", 6, "expected a decimal digit"),
            ("port=4x3", 7, "expected a decimal digit"),
            ("port=1,,2", 8, "expected a value"),
            ("port=1,65536", 8, "the value needs 17 bits, but the field has 16"),
            ("port=5..", 9, "expected a value"),
            ("port=5..3", 9, "the range ends before it starts"),
            ("port=5/17", 8, "expected the bits of a prefix, from 0 to 16"),
            ("port=5/x", 8, "expected the bits of a prefix, from 0 to 16"),
            (
                "src=10.0.0",
                11,
                "expected an IPv4 address: four numbers from 0 to 255, separated by dots",
            ),
            ("port=10.0.0.1", 6, "an IPv4 address needs a field of 32 bits, but this one has 16"),
            ("src=1:2", 5, "expected a MAC or an IPv6 address"),
        ] {
            let mark = " ".repeat(character - 1);
            folder.run(&format!("get flows.tdx port=1 {condition}")).failed(
                2,
                &format!("condition, character {character}: {what}\n    {condition}\n    {mark}^"),
            );
        }
        let long = format!("port={}x", "1,".repeat(60));
        folder.run(&format!("get flows.tdx {long}")).failed(
            2,
            "condition 'port=1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1..', character 126: expected a \
             decimal digit",
        );
        folder.run("get flows.tdx \u{1b}\u{fc}=1").failed(
            2,
            "condition, character 1: no field '\\u{1b}\u{fc}', expected one of: src, port, len\n\
             \x20   \\u{1b}\u{fc}=1\n    ^",
        );
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn output_that_cannot_be_written_is_reported() {
        let folder = flows();
        for args in ["get flows.tdx port=53", "info flows.tdx", "verify flows.tdx"] {
            let output = std::process::Command::new(env!("CARGO_BIN_EXE_tapdex"))
                .arg("index-file")
                .args(args.split(' '))
                .current_dir(folder.0.path())
                .stdout(std::fs::File::create("/dev/full").unwrap())
                .output()
                .unwrap();
            let err = String::from_utf8(output.stderr).unwrap();
            assert!(err.starts_with("tapdex: cannot write standard output: "), "{err}");
            assert_eq!(output.status.code(), Some(4), "{args}");
        }
    }
}
