//! The command as people use it: the real binary, whole outputs and exit codes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use tapdex_bitmap::ALL_CODECS;

/// How a run ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: Vec<u8>,
    err: String,
}

impl Ended {
    /// The output of a run that went well and had nothing to say besides.
    #[track_caller]
    fn done(self) -> Vec<u8> {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""));
        self.out
    }

    #[track_caller]
    fn prints(self, expected: &str) {
        assert_eq!(String::from_utf8(self.done()).unwrap(), expected);
    }

    /// The run was refused with that message and printed nothing.
    #[track_caller]
    fn refused(self, message: &str) {
        assert_eq!(self.err, format!("tapdex: {message}\n"));
        assert_eq!((self.code, self.out.as_slice()), (Some(2), &b""[..]));
    }

    /// Like `refused`, for what the argument parser finds.
    #[track_caller]
    fn refused_usage(self, message: &str) {
        self.refused(&format!("{message}\n\nFor more information, try '--help'."));
    }
}

fn tapdex(args: &str, input: impl Into<Vec<u8>>) -> Ended {
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_tapdex"));
    let output = command.args(args.split_whitespace()).write_stdin(input).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    Ended { code: output.status.code(), out: output.stdout, err }
}

mod help {
    use super::*;

    const COMMANDS: [&str; 10] = [
        "codec list",
        "codec encode",
        "codec decode",
        "codec explain",
        "codec stats",
        "codec sample",
        "index-file build",
        "index-file info",
        "index-file verify",
        "index-file get",
    ];

    /// The lines of a help text that show a command.
    fn examples(help: &str) -> Vec<&str> {
        let lines = help.lines().filter_map(|line| line.strip_prefix("    "));
        let is_command = |line: &&str| line.starts_with("tapdex ") || line.starts_with("printf ");
        // What takes an interface and goes on until Ctrl-C has tests of its own.
        let ends = |line: &&str| !line.starts_with("tapdex record ");
        lines.filter(is_command).filter(ends).collect()
    }

    /// What the index commands say besides, when all went well.
    fn is_summary(line: &str) -> bool {
        line.starts_with("tapdex: wrote ")
            || line.starts_with("tapdex: matched ")
            || line.ends_with("judged by outer headers only; Wireshark would look inside")
    }

    #[test]
    fn examples_run() {
        let folder = tempfile::tempdir().unwrap();
        let bin = Path::new(env!("CARGO_BIN_EXE_tapdex")).parent().unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let mut shown = 0;
        for args in COMMANDS.into_iter().chain(["codec", "index-file", ""]) {
            let help = tapdex(&format!("{args} --help"), "").done();
            let help = String::from_utf8(help).unwrap();
            for example in examples(&help) {
                shown += 1;
                let mut command = Command::new("sh");
                let command = command.args(["-c", example]).current_dir(folder.path());
                let output = command.env("PATH", &path).output().unwrap();
                let err = String::from_utf8_lossy(&output.stderr);
                let quiet = err.lines().all(is_summary);
                assert!(output.status.success() && quiet, "{args}: {example}\n{err}");
            }
        }
        assert!(shown >= 30, "only {shown} examples found");
    }

    #[test]
    fn every_command_has_help_on_both_ways() {
        for command in COMMANDS {
            let asked = tapdex(&format!("help {command}"), "").done();
            assert_eq!(asked, tapdex(&format!("{command} --help"), "").done());
            assert!(asked.len() > 100, "{command}");
        }
    }

    #[test]
    fn version_is_named() {
        tapdex("--version", "").prints(concat!("tapdex ", env!("CARGO_PKG_VERSION"), "\n"));
    }

    #[test]
    fn a_missing_subcommand_is_bad_usage() {
        for args in ["", "codec", "index-file"] {
            let ended = tapdex(args, "");
            assert_eq!((ended.code, ended.out.as_slice()), (Some(2), &b""[..]));
            assert!(ended.err.contains("Usage: tapdex"), "{}", ended.err);
        }
    }
}

mod list {
    use super::*;

    #[test]
    fn every_codec_has_a_line() {
        let expected = "
id  name        summary                                                         page
 1  wah         fills of 31-row groups and literals                             docs/codecs/wah.md
 2  plwah       WAH; a fill takes in a literal that differs from it in one row  docs/codecs/plwah.md
";
        let out = String::from_utf8(tapdex("codec list", "").done()).unwrap();
        assert!(out.starts_with(expected.trim_start()), "{out}");
        assert_eq!(out.lines().count(), 1 + ALL_CODECS.len());
        for (line, codec) in out.lines().skip(1).zip(ALL_CODECS) {
            let page = format!("docs/codecs/{codec}.md");
            assert!(line.contains(codec.summary()) && line.ends_with(&page), "{line}");
        }
    }
}

mod encode {
    use super::*;

    #[test]
    fn words_are_printed_in_hex() {
        tapdex("codec encode --codec wah --rows 217", "44-80\n168-171\n")
            .prints("80000001\n0003FFFF\n7FFFF000\n80000002\n0003C000\n");
    }

    #[test]
    fn blanks_and_comments_are_ignored() {
        let ids = "# bursts\n\n 44 - 80 \n168-171 # the second\r\n";
        tapdex("codec encode --codec masc --rows 217", ids)
            .prints("0000002D\nC0000026\n48000059\n");
    }

    #[test]
    fn bytes_after_the_last_word_are_a_number_too() {
        let ids = "0-10\n131075\n2228227\n";
        tapdex("codec encode --codec roaring --rows 2228228", ids)
            .prints("0002303B\n0A000001\n00000200\n00002200\n00000100\n03000A00\n000300\n");
    }

    #[test]
    fn raw_writes_bytes() {
        let bytes = tapdex("codec encode --codec masc --rows 217 --raw", "44-80\n168-171\n").done();
        assert_eq!(bytes, [0x2D, 0, 0, 0, 0x26, 0, 0, 0xC0, 0x59, 0, 0, 0x48]);
    }

    #[test]
    fn no_ids_are_the_empty_set() {
        tapdex("codec encode --codec plwah --rows 0", "").prints("");
        tapdex("codec encode --codec roaring --rows 0", "# none\n").prints("0000303A\n00000000\n");
    }

    #[test]
    fn auto_takes_the_smallest_and_says_so() {
        let ended = tapdex("codec encode --codec auto --rows 217", "44-80\n168-171\n");
        assert_eq!(ended.err, "tapdex: used masc, 12 bytes\n");
        assert_eq!((ended.code, ended.out), (Some(0), b"0000002D\nC0000026\n48000059\n".to_vec()));
    }

    #[test]
    fn the_last_row_there_can_be_is_encoded() {
        tapdex("codec encode --codec masc --rows 4294967295", "4294967294\n")
            .prints("3FFFFFFE\n3FFFFFFE\n3FFFFFFE\n3FFFFFFE\n08421086\nC0000001\n");
    }

    #[test]
    fn ids_that_do_not_ascend_are_refused() {
        let must = "but ids must ascend without duplicates";
        tapdex("codec encode --codec wah --rows 100", "\n7\n5\n")
            .refused(&format!("cannot read line 3: id 5 follows id 7, {must}"));
        tapdex("codec encode --codec wah --rows 100", "3-7\n7\n")
            .refused(&format!("cannot read line 2: id 7 follows id 7, {must}"));
    }

    #[test]
    fn a_range_that_ends_before_it_starts_is_refused() {
        tapdex("codec encode --codec wah --rows 100", "1\n9-5\n")
            .refused("cannot read line 2: the range 9-5 ends before it starts");
    }

    #[test]
    fn what_is_not_a_number_is_refused() {
        tapdex("codec encode --codec wah --rows 100", "1\n2x\n").refused(
            "cannot read line 2: '2x' is neither an id such as 7 nor a range such as 44-80",
        );
        tapdex("codec encode --codec wah --rows 100", "\x1b[1m\n").refused(
            "cannot read line 1: '\\u{1b}[1m' is neither an id such as 7 nor a range such as 44-80",
        );
    }

    #[test]
    fn an_id_past_the_rows_is_refused() {
        tapdex("codec encode --codec wah --rows 100", "1\n100\n")
            .refused("cannot read line 2: id 100 is not below --rows 100");
        tapdex("codec encode --codec wah --rows 100", "5-4294967296\n")
            .refused("cannot read line 1: id 4294967296 is not below --rows 100");
    }

    #[test]
    fn an_unknown_codec_is_refused() {
        tapdex("codec encode --codec lzw --rows 9", "").refused_usage(
            "invalid value 'lzw' for '--codec <NAME>'\n  [possible values: wah, plwah, \
             plwah-plus, compax, compax2, secompax, masc, hipes, roaring, auto]",
        );
    }

    #[test]
    fn options_of_another_codec_are_refused() {
        for codec in ["wah", "masc", "auto"] {
            tapdex(&format!("codec encode --codec {codec} --rows 9 --w 7"), "")
                .refused(&format!("--w applies to --codec hipes only, not to {codec}"));
        }
        for codec in ["wah", "hipes", "auto"] {
            tapdex(&format!("codec encode --codec {codec} --rows 9 --windowed"), "")
                .refused(&format!("--windowed applies to --codec masc only, not to {codec}"));
        }
    }

    #[test]
    fn a_width_out_of_bounds_is_refused() {
        for w in ["6", "30", "x"] {
            tapdex(&format!("codec encode --codec hipes --rows 9 --w {w}"), "").refused_usage(
                &format!("invalid value '{w}' for '--w <W>': expected a whole number from 7 to 29"),
            );
        }
    }

    #[test]
    fn too_many_rows_are_refused() {
        tapdex("codec encode --codec wah --rows 4294967296", "").refused_usage(
            "invalid value '4294967296' for '--rows <N>': 4294967296 is not in 0..=4294967295",
        );
    }
}

mod decode {
    use super::*;

    #[test]
    fn ids_are_printed_as_maximal_ranges() {
        tapdex("codec decode --codec wah --rows 128", "40000380 80000002\n\n001FFFFF\t78000000")
            .prints("0\n21-23\n103-127\n");
        tapdex("codec decode --codec masc --rows 8000 --windowed", "0x50000FF7\n0xc0000008\n")
            .prints("3960-3975\n");
    }

    #[test]
    fn odd_words_are_refused() {
        tapdex("codec decode --codec wah --rows 9", "40000380 80000002\n001FFFFG")
            .refused("word 3 on line 2, '001FFFFG', is not a hex number");
        tapdex("codec decode --codec wah --rows 9", "40000380\n123").refused(
            "word 2 on line 2, '123', has 3 digits, expected 8, or in the last word 2, 4 or 6",
        );
        tapdex("codec decode --codec wah --rows 9", "1234 40000380").refused(
            "word 1 on line 1, '1234', has fewer than 8 digits, and only the last word may",
        );
    }

    #[test]
    fn rows_that_are_too_few_are_hinted_at() {
        tapdex("codec decode --codec masc --rows 171", "0000002D C0000026 48000059").refused(
            "not what --codec masc writes for 171 rows: rows at or past the row count 171, \
             said at offset 8\n  hint: the last id is 171, so --rows must be at least 172",
        );
    }

    #[test]
    fn another_form_is_hinted_at() {
        let windowed = tapdex("codec encode --codec masc --rows 8001 --windowed", "5\n8000\n");
        let ended = tapdex("codec decode --codec masc --rows 8001", windowed.done());
        assert_eq!((ended.code, ended.out.as_slice()), (Some(2), &b""[..]));
        assert!(ended.err.contains("\n  hint: it is valid with --codec masc --windowed"));

        let narrow = tapdex("codec encode --codec hipes --rows 900 --w 7", "800\n").done();
        let ended = tapdex("codec decode --codec hipes --rows 900", narrow);
        assert_eq!((ended.code, ended.out.as_slice()), (Some(2), &b""[..]));
        assert!(ended.err.contains("\n  hint: it is valid with --codec hipes --w 7"));
    }

    #[test]
    fn words_that_no_encoder_writes_are_refused_without_a_hint() {
        tapdex("codec decode --codec wah --rows 0", "80000001 7FFFFFFF").refused(
            "not what --codec wah writes for 0 rows: rows at or past the row count 0, \
             said at offset 0",
        );
    }

    #[test]
    fn an_empty_roaring_stream_is_hinted_at() {
        let ended = tapdex("codec decode --codec roaring --rows 9", "");
        assert_eq!((ended.code, ended.out.as_slice()), (Some(2), &b""[..]));
        let hint = "\n  hint: the input is empty, but roaring encodes the empty set as bytes\n";
        assert!(ended.err.ends_with(hint), "{}", ended.err);
    }

    #[test]
    fn auto_and_options_of_another_codec_are_refused() {
        tapdex("codec decode --codec auto --rows 9", "").refused_usage(
            "invalid value 'auto' for '--codec <NAME>'\n  [possible values: wah, plwah, \
             plwah-plus, compax, compax2, secompax, masc, hipes, roaring]",
        );
        tapdex("codec decode --codec wah --rows 9 --w 7", "")
            .refused("--w applies to --codec hipes only, not to wah");
        tapdex("codec decode --codec wah --rows 9 --windowed", "")
            .refused("--windowed applies to --codec masc only, not to wah");
    }
}

mod round_trip {
    use super::*;

    const ROWS: u32 = 300_000;

    /// Sets of each shape, and the edges.
    fn sets() -> Vec<Vec<u8>> {
        let mut sets = vec![
            b"".to_vec(),
            b"0\n".to_vec(),
            b"30-31\n61-62\n".to_vec(),
            b"65535-65536\n131071\n299999\n".to_vec(),
            b"0-299999\n".to_vec(),
        ];
        for family in ["uniform", "clustered", "zipf-runs", "hipes"] {
            for density in ["0.0005", "0.05", "0.7"] {
                let flags = format!("--family {family} --density {density} --rows {ROWS}");
                sets.push(tapdex(&format!("codec sample {flags}"), "").done());
            }
        }
        sets
    }

    #[track_caller]
    fn check(set: &[u8], flags: &str) {
        let words = tapdex(&format!("codec encode --rows {ROWS} {flags}"), set).done();
        let back = tapdex(&format!("codec decode --rows {ROWS} {flags}"), words).done();
        assert!(back == set, "{flags}: {} bytes of text came back", back.len());
    }

    #[test]
    fn every_codec_gives_the_set_back() {
        for set in sets() {
            for codec in ALL_CODECS {
                check(&set, &format!("--codec {codec}"));
                check(&set, &format!("--codec {codec} --raw"));
            }
        }
    }

    #[test]
    fn windows_and_widths_give_the_set_back() {
        for set in sets() {
            check(&set, "--codec masc --windowed");
            check(&set, "--codec masc --windowed --raw");
            check(&set, "--codec hipes --w 7");
            check(&set, "--codec hipes --w 18");
        }
        check(b"3\n70000-200000\n", "--codec hipes --w 29 --raw");
    }

    #[test]
    fn raw_and_words_are_the_same_bytes() {
        let ids = "7\n9-500\n200000\n";
        for codec in ALL_CODECS {
            let flags = format!("codec encode --rows {ROWS} --codec {codec}");
            let text = String::from_utf8(tapdex(&flags, ids).done()).unwrap();
            let raw = tapdex(&format!("{flags} --raw"), ids).done();
            let mut bytes = vec![];
            for word in text.lines() {
                let value = u32::from_str_radix(word, 16).unwrap();
                bytes.extend_from_slice(&value.to_le_bytes()[..word.len() / 2]);
            }
            assert!(raw == bytes, "{codec}");
        }
    }
}

mod explain {
    use super::*;

    #[test]
    fn words_are_shown_with_their_fields() {
        let words = "80000001 0003FFFF 7FFFF000 80000002 0003C000";
        let expected = "\
offset  word      rows     kind     fields
     0  80000001  0-30     fill     value 0, groups 1
     4  0003FFFF  31-61    literal  rows 18
     8  7FFFF000  62-92    literal  rows 19
    12  80000002  93-154   fill     value 0, groups 2
    16  0003C000  155-185  literal  rows 4
";
        tapdex("codec explain --codec wah", words).prints(expected);
        tapdex("codec explain --codec wah --rows 217", words).prints(expected);
    }

    #[test]
    fn windows_have_their_entries_of_the_query_table() {
        let words = "42000005 00000FF9 00001000 42000042";
        tapdex("codec explain --codec masc --windowed", words).prints(
            "\
offset  word      entry  rows       kind     fields
     0  42000005  1000   0-5        carried  zeros 5, ones 1
     4  00000FF9  0006   6-3967     zeros    length 3962
     8  00001000  0000   3968-7935  zeros    length 3968
    12  42000042  1000   7936-8000  carried  zeros 64, ones 1
",
        );
    }

    #[test]
    fn entries_are_left_out_where_the_windows_are_not_valid() {
        tapdex("codec explain --codec masc --windowed", "42001000").prints(
            "\
offset  word      entry  rows    kind     fields
     0  42001000  -      0-3968  carried  zeros 3968, ones 1
",
        );
    }

    #[test]
    fn long_parts_are_not_shown_in_hex() {
        let words = tapdex("codec encode --codec roaring --rows 9", "1\n3\n5\n7\n8\n").done();
        tapdex("codec explain --codec roaring --rows 9", words).prints(
            "\
offset  word      rows     kind             fields
     0  0000303A  -        cookie, no runs
     4  00000001  -        containers       count 1
     8  00040000  0-65535  key              key 0, ids 5
    12  00000010  -        offset           container 0, at 16
    16  ..        1-8      array            ids 5
",
        );
    }

    #[test]
    fn hipes_shows_words_that_hold_a_row() {
        let words = "00000000 80000000 00000001 00000000 80000000";
        tapdex("codec explain --codec hipes --w 7 --rows 128", words).prints(
            "\
offset  word      rows    kind   fields
     0  00000000  0-127   chunk  id 0, words 4
     4  80000000  0-31    bits   rows 1
     8  00000001  32-63   bits   rows 1
    16  80000000  96-127  bits   rows 1
",
        );
    }

    #[test]
    fn what_is_not_valid_is_marked() {
        let ended = tapdex("codec explain --codec wah --rows 217", "40000000 80000001 80000002");
        let expected = "   offset  word      rows    kind     fields
        0  40000000  0-30    literal  rows 1
>       4  80000001  31-61   fill     value 0, groups 1
        8  80000002  62-123  fill     value 0, groups 2
";
        assert_eq!(String::from_utf8(ended.out).unwrap(), expected);
        assert_eq!(ended.code, Some(2));
        let message = "tapdex: not what --codec wah writes for 217 rows: nothing may follow the \
                       last id, but bytes go on at offset 4\n";
        assert!(ended.err.starts_with(message), "{}", ended.err);
    }

    #[test]
    fn what_is_not_a_whole_word_is_shown_and_marked() {
        let ended = tapdex("codec explain --codec wah --rows 217", "40000000 0001");
        let expected = "   offset  word      rows  kind     fields
        0  40000000  0-30  literal  rows 1
>       4  0001      -     rest     bytes 2
";
        assert_eq!(String::from_utf8(ended.out).unwrap(), expected);
        assert_eq!(ended.code, Some(2));
        let out = tapdex("codec explain --codec hipes --w 7", "00000000 00000001").done();
        let expected = "\
offset  word              rows  kind  fields
     0  0000000100000000  -     rest  bytes 8
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn any_bytes_are_explained() {
        let noise: Vec<u8> = (0..4_000_u32).map(|n| (n * n * 7).to_le_bytes()[1]).collect();
        for codec in ALL_CODECS {
            for len in [0, 1, 7, 8, 9, 4_000] {
                tapdex(&format!("codec explain --raw --codec {codec}"), &noise[..len]).done();
            }
        }
    }
}

mod stats {
    use super::*;

    #[test]
    fn every_codec_has_its_size() {
        tapdex("codec stats --rows 217", "44-80\n168-171\n").prints(
            "\
ids 41, rows 217, density 0.1889
codec       bytes  bits per id  ratio to wah
wah            20         3.90          1.00
plwah          20         3.90          1.00
plwah-plus     16         3.12          0.80
compax         20         3.90          1.00
compax2        20         3.90          1.00
secompax       20         3.90          1.00
masc           12         2.34          0.60  *
hipes        8196      1599.22        409.80
roaring        19         3.71          0.95
",
        );
    }

    #[test]
    fn json_says_the_same() {
        let out = tapdex("codec stats --json", "44-80\n168-171\n").done();
        let out = String::from_utf8(out).unwrap();
        let lines: Vec<_> = out.lines().collect();
        assert_eq!(lines.len(), 1 + ALL_CODECS.len());
        assert_eq!(lines[0], r#"{"ids":41,"rows":172,"density":0.2384}"#);
        let codec = |name, bytes, bits, ratio, smallest| {
            let start = format!(r#"{{"codec":"{name}","bytes":{bytes},"bits_per_id":{bits},"#);
            start + &format!(r#""ratio_to_wah":{ratio},"smallest":{smallest}}}"#)
        };
        assert_eq!(lines[1], codec("wah", 20, "3.90", "1.00", false));
        assert_eq!(lines[7], codec("masc", 12, "2.34", "0.60", true));
    }

    #[test]
    fn the_empty_set_divides_by_nothing() {
        let out = String::from_utf8(tapdex("codec stats", "").done()).unwrap();
        let expected = "\
ids 0, rows 0, density -
codec       bytes  bits per id  ratio to wah
wah             0            -             -  *
";
        assert!(out.starts_with(expected), "{out}");
        let out = String::from_utf8(tapdex("codec stats --rows 5 --json", "").done()).unwrap();
        assert!(out.starts_with(r#"{"ids":0,"rows":5,"density":0}"#), "{out}");
        let roaring = out.lines().last().unwrap();
        let expected = r#"{"codec":"roaring","bytes":8,"bits_per_id":null,"ratio_to_wah":null,"#;
        assert!(roaring.starts_with(expected), "{roaring}");
    }

    #[test]
    fn ids_past_the_rows_or_the_largest_are_refused() {
        tapdex("codec stats --rows 80", "44-80\n")
            .refused("cannot read line 1: id 80 is not below --rows 80");
        tapdex("codec stats", "4294967295\n")
            .refused("cannot read line 1: id 4294967295 is above the maximum 4294967294");
    }

    #[test]
    fn sizes_are_those_of_the_encoded_bytes() {
        let ids = tapdex("codec sample --rows 200000", "").done();
        let out = String::from_utf8(tapdex("codec stats", ids.clone()).done()).unwrap();
        for (line, codec) in out.lines().skip(2).zip(ALL_CODECS) {
            let flags = format!("codec encode --rows 200000 --raw --codec {codec}");
            let bytes = tapdex(&flags, ids.clone()).done().len();
            let cells: Vec<_> = line.split_whitespace().collect();
            assert_eq!(cells[..2], [codec.name(), &bytes.to_string()]);
        }
    }
}

mod sample {
    use super::*;

    #[test]
    fn all_flags_have_defaults() {
        let flags = "--family clustered --rows 1000000 --density 0.05 --seed 1";
        let ids = tapdex("codec sample", "").done();
        assert_eq!(ids, tapdex(&format!("codec sample {flags}"), "").done());
        let stats = String::from_utf8(tapdex("codec stats --rows 1000000", ids).done()).unwrap();
        let density = stats.lines().next().unwrap().rsplit(' ').next().unwrap();
        assert!((0.04..0.06).contains(&density.parse::<f64>().unwrap()), "{density}");
    }

    #[test]
    fn the_seed_decides() {
        for family in ["uniform", "clustered", "zipf-runs", "hipes"] {
            let flags = format!("codec sample --rows 10000 --family {family} --seed");
            let one = tapdex(&format!("{flags} 1"), "").done();
            assert_eq!(one, tapdex(&format!("{flags} 1"), "").done());
            assert_ne!(one, tapdex(&format!("{flags} 2"), "").done());
        }
    }

    #[test]
    fn a_single_row_is_enough() {
        for family in ["uniform", "hipes"] {
            let flags = format!("codec sample --rows 1 --density 1 --family {family}");
            tapdex(&flags, "").prints("0\n");
        }
        tapdex("codec sample --rows 1000000 --density 1e-300 --family uniform", "").prints("");
    }

    #[test]
    fn a_density_out_of_bounds_is_refused() {
        for density in ["0", "-0.5", "1.01", "NaN", "inf", "x"] {
            let expected = "expected a number above 0 and up to 1";
            tapdex(&format!("codec sample --density {density}"), "").refused_usage(&format!(
                "invalid value '{density}' for '--density <D>': {expected}"
            ));
        }
    }

    #[test]
    fn clusters_are_for_one_family_only() {
        tapdex("codec sample --clusters 5", "").refused("--clusters is for --family hipes only");
        let ids = tapdex("codec sample --family hipes --clusters 0 --density 0.001", "").done();
        assert!(!ids.is_empty());
    }

    #[test]
    fn no_rows_and_too_many_clusters_are_refused() {
        tapdex("codec sample --rows 0", "")
            .refused_usage("invalid value '0' for '--rows <N>': 0 is not in 1..=4294967295");
        tapdex("codec sample --family hipes --clusters 10001", "")
            .refused_usage("invalid value '10001' for '--clusters <C>': 10001 is not in 0..=10000");
    }
}

mod streams {
    use super::*;

    #[test]
    fn a_reader_that_stops_early_is_no_error() {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tapdex"))
            .args(["codec", "sample", "--rows", "10000000"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        // The pipe is closed at the end of the statement, long before all is written.
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr), (Some(0), vec![]));
        assert!(line.ends_with('\n') && line.len() > 1);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_reported() {
        for args in ["codec sample", "codec list", "--help"] {
            let output = Command::new(env!("CARGO_BIN_EXE_tapdex"))
                .args(args.split(' '))
                .stdout(std::fs::File::create("/dev/full").unwrap())
                .output()
                .unwrap();
            assert_eq!(output.status.code(), Some(4), "{args}");
            let err = String::from_utf8(output.stderr).unwrap();
            assert!(err.starts_with("tapdex: cannot write standard output: "), "{err}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn input_that_cannot_be_read_is_reported() {
        for args in ["encode --codec wah --rows 9", "decode --codec wah --rows 9 --raw", "stats"] {
            let output = Command::new(env!("CARGO_BIN_EXE_tapdex"))
                .arg("codec")
                .args(args.split(' '))
                .stdin(std::fs::File::open(env!("CARGO_MANIFEST_DIR")).unwrap())
                .output()
                .unwrap();
            assert_eq!((output.status.code(), output.stdout), (Some(4), vec![]), "{args}");
            let err = String::from_utf8(output.stderr).unwrap();
            assert!(err.starts_with("tapdex: cannot read standard input: "), "{err}");
        }
    }
}
