//! Every fuzz target starts, and takes some inputs. This finds targets that no longer build or fail
//! at once; `scripts/fuzz` looks for more, with a tool chain of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The targets, by the program that each of them is.
macro_rules! targets {
    ($($name:literal),* $(,)?) => {
        const TARGETS: &[(&str, &str)] =
            &[$(($name, env!(concat!("CARGO_BIN_EXE_", $name)))),*];
    };
}

targets![
    "decode_wah",
    "decode_plwah",
    "decode_plwah_plus",
    "decode_compax",
    "decode_compax2",
    "decode_secompax",
    "decode_masc",
    "decode_hipes",
    "decode_roaring",
    "ops_vs_oracle",
    "index_open",
    "decode_frame",
    "pcap_read",
    "filter_parse",
    "recording",
    "request",
];

/// Inputs that are the same in every run: none, short ones, and bytes without order.
fn inputs(folder: &Path) -> Vec<PathBuf> {
    let mut state = 1_u64;
    let mut random = |len: usize| -> Vec<u8> {
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_le_bytes()[7]
        };
        (0..len).map(next).collect()
    };
    let mut texts = vec![vec![], b"tcp port 80 and not host 10.0.0.1".to_vec(), vec![0; 64]];
    texts.push(b"\x00q=udp+port+53&from=-1h\n{\"n\":\"5\"}".to_vec());
    // The head of a pcap file, and what may be packets.
    let head = [0xD4, 0xC3, 0xB2, 0xA1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
    texts.push([&head[..], &[0; 16], &random(40)].concat());
    texts.extend([1, 2, 3, 7, 30, 100, 500, 2_000].map(&mut random));
    let write = |(number, text): (usize, &Vec<u8>)| {
        let path = folder.join(number.to_string());
        std::fs::write(&path, text).expect("a folder for tests");
        path
    };
    texts.iter().enumerate().map(write).collect()
}

#[test]
fn every_target_takes_some_inputs() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let inputs = inputs(&folder);
    for (name, program) in TARGETS {
        let mut command = Command::new(program);
        let output = command.args(&inputs).output().expect("the target starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {said}");
        // libFuzzer says so for every input.
        assert_eq!(said.matches("Executed ").count(), inputs.len(), "{name}: {said}");
    }
}
