//! Every kernel compiles for the architectures that we promise. `scripts/cuda-check` runs this.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use tapdex_gpu::cuda;
use tapdex_gpu::sources::STEMS;

const ARCHITECTURES: [&str; 3] = ["sm_75", "sm_80", "sm_90"];

/// Prints the bytes of each stem; with `TAPDEX_LOG` set also what each kernel uses.
#[test]
#[ignore = "needs libnvrtc; scripts/cuda-check runs it"]
fn nvrtc_compiles_every_stem() {
    let mut failures = Vec::new();
    for (stem, _) in STEMS {
        for arch in ARCHITECTURES {
            match cuda::compile(stem, arch) {
                Ok(compiled) => {
                    assert!(compiled.cubin.starts_with(b"\x7fELF"), "{stem} for {arch}");
                    println!("{stem:<12} {arch} {:>8} bytes", compiled.cubin.len());
                    if std::env::var_os("TAPDEX_LOG").is_some() {
                        println!("{}", compiled.log);
                    }
                    let warnings = without_usage(&compiled.log);
                    if !warnings.is_empty() {
                        failures.push(format!("{stem} for {arch}:\n{warnings}"));
                    }
                }
                Err(error) => failures.push(format!("for {arch}: {error}")),
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// What is left of a log without what each kernel uses: the warnings.
fn without_usage(log: &str) -> String {
    let lines = log.lines().filter(|line| !line.starts_with("ptxas ") || line.contains("warning"));
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}
