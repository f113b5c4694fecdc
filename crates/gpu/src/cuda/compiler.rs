//! NVIDIA's compiler library, NVRTC: it compiles the text of a stem to a *cubin*, the kernels in
//! machine code for one architecture.
//!
//! It compiles for any architecture it knows, with no device in the machine.

// True of every call below: the function is there, because `compiler_ready` went before, and it
// writes to local variables of the types it wants. The notes say what else a call relies on.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;

use cudarc::nvrtc::sys::{self as nvrtc, nvrtcProgram, nvrtcResult};

use super::cache::{Cache, Key};
use super::text_of;
use crate::device::{DeviceError, Lack};
use crate::sources;

/// What the kernels are compiled with, besides the card's architecture. The line numbers are for
/// profilers and debuggers; the code is the same without them.
const OPTIONS: [&str; 2] = ["--std=c++17", "--generate-line-info"];

/// A kernel that does nothing, to see whether kernels work at all.
pub(super) const PROBE: &str = "extern \"C\" __global__ void probe() {}\n";

/// The compiler's functions that are used here.
const COMPILER_CALLS: &[&str] = &[
    "nvrtcCompileProgram",
    "nvrtcCreateProgram",
    "nvrtcDestroyProgram",
    "nvrtcGetCUBIN",
    "nvrtcGetCUBINSize",
    "nvrtcGetErrorString",
    "nvrtcGetProgramLog",
    "nvrtcGetProgramLogSize",
    "nvrtcVersion",
];

/// Makes sure that the compiler is there, and returns its version.
pub(super) fn compiler_ready() -> Result<String, DeviceError> {
    // SAFETY: loading the compiler runs its own start, which asks nothing of us.
    if !unsafe { nvrtc::is_culib_present() } {
        return Err(DeviceError::Missing(Lack::Compiler));
    }
    for name in COMPILER_CALLS {
        // SAFETY: the library is there; the address is asked for, and not used.
        if unsafe { nvrtc::culib().get::<*const c_void>(name.as_bytes()) }.is_err() {
            return Err(DeviceError::Missing(Lack::CompilerCall { name }));
        }
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: nothing else.
    match unsafe { nvrtc::nvrtcVersion(&mut major, &mut minor) } {
        nvrtcResult::NVRTC_SUCCESS => Ok(format!("{major}.{minor}")),
        failed => Err(DeviceError::Missing(Lack::CompilerStart { why: compiler_words(failed) })),
    }
}

/// The result of compiling.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The kernels, as the device runs them.
    pub cubin: Vec<u8>,
    /// Warnings, and registers and memory that each kernel uses.
    pub log: String,
}

/// Compiles the kernels of a stem for an architecture such as `sm_90`. Needs the compiler, and no
/// device; nothing is kept on disk.
pub fn compile(stem: &str, arch: &str) -> Result<Compiled, DeviceError> {
    compiler_ready()?;
    translate(stem, &source_of(stem)?, arch, &["--ptxas-options=-v"])
        .map_err(|log| DeviceError::Compile { stem: stem.to_owned(), log })
}

pub(super) fn source_of(stem: &str) -> Result<String, DeviceError> {
    sources::resolved(stem).ok_or_else(|| DeviceError::Compile {
        stem: stem.to_owned(),
        log: "there is no such file".to_owned(),
    })
}

/// The compiled kernels of a source, from the cache if they are there; or the compiler's message.
pub(super) fn cubin(
    cache: &Cache,
    stem: &str,
    text: &str,
    arch: &str,
    compiler: &str,
) -> Result<Vec<u8>, String> {
    let key = key_of(text, arch, compiler);
    if let Some(cubin) = cache.get(stem, key) {
        return Ok(cubin);
    }
    let cubin = translate(stem, text, arch, &[])?.cubin;
    cache.put(stem, key, &cubin);
    Ok(cubin)
}

fn key_of(text: &str, arch: &str, compiler: &str) -> Key {
    Key::of(&[text, &OPTIONS.join(" "), compiler, arch].map(str::as_bytes))
}

/// A program in the compiler's hands.
struct Program(nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: `new` made it.
        let _ = unsafe { nvrtc::nvrtcDestroyProgram(&mut self.0) };
    }
}

impl Program {
    fn new(stem: &str, text: &str) -> Result<Self, String> {
        let name = c_string(&format!("{stem}.cu"))?;
        let text = c_string(text)?;
        let mut program = ptr::null_mut();
        let (none, names) = (ptr::null(), ptr::null());
        // SAFETY: both texts end with 0, and are copied; there are no headers.
        let result = unsafe {
            nvrtc::nvrtcCreateProgram(&mut program, text.as_ptr(), name.as_ptr(), 0, none, names)
        };
        understood(result).map(|()| Self(program))
    }

    fn compile(&self, options: &[String]) -> Result<(), String> {
        let options: Vec<CString> =
            options.iter().map(|option| c_string(option)).collect::<Result<_, _>>()?;
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let count = c_int::try_from(pointers.len()).unwrap_or(0);
        // SAFETY: there are that many options, and each ends with 0.
        let result = unsafe { nvrtc::nvrtcCompileProgram(self.0, count, pointers.as_ptr()) };
        understood(result)
    }

    fn log(&self) -> String {
        let bytes = fetch(
            // SAFETY: `new` made the program.
            |len| unsafe { nvrtc::nvrtcGetProgramLogSize(self.0, len) },
            // SAFETY: as above, and the room is as large as was asked for.
            |room| unsafe { nvrtc::nvrtcGetProgramLog(self.0, room) },
        );
        bytes.map_or_else(|why| why, |bytes| text_of(&bytes).trim().to_owned())
    }

    fn cubin(&self) -> Result<Vec<u8>, String> {
        fetch(
            // SAFETY: `new` made the program.
            |len| unsafe { nvrtc::nvrtcGetCUBINSize(self.0, len) },
            // SAFETY: as above, and the room is as large as was asked for.
            |room| unsafe { nvrtc::nvrtcGetCUBIN(self.0, room) },
        )
    }
}

/// Asks the compiler for the length of something, and then for the thing itself.
fn fetch(
    size: impl Fn(*mut usize) -> nvrtcResult,
    get: impl Fn(*mut c_char) -> nvrtcResult,
) -> Result<Vec<u8>, String> {
    let mut len = 0;
    understood(size(&mut len))?;
    let mut bytes = vec![0_u8; len];
    understood(get(bytes.as_mut_ptr().cast()))?;
    Ok(bytes)
}

/// Compiles a text; the error is the compiler's message.
fn translate(stem: &str, text: &str, arch: &str, extra: &[&str]) -> Result<Compiled, String> {
    let program = Program::new(stem, text)?;
    let mut options = vec![format!("--gpu-architecture={arch}")];
    options.extend(OPTIONS.iter().chain(extra).map(|option| (*option).to_owned()));
    if let Err(why) = program.compile(&options) {
        return Err(format!("{why}\n{}", program.log()));
    }
    Ok(Compiled { cubin: program.cubin()?, log: program.log() })
}

fn c_string(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| "there is a 0 in the text".to_owned())
}

fn understood(result: nvrtcResult) -> Result<(), String> {
    match result {
        nvrtcResult::NVRTC_SUCCESS => Ok(()),
        failed => Err(compiler_words(failed)),
    }
}

fn compiler_words(failed: nvrtcResult) -> String {
    // SAFETY: the compiler's own text, which ends with 0 and is always there.
    unsafe { CStr::from_ptr(nvrtc::nvrtcGetErrorString(failed)) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_called_is_looked_for() {
        let source = include_str!("compiler.rs");
        assert_eq!(super::super::called(source, "nvrtc::", "nvrtc"), COMPILER_CALLS);
    }

    // The tests below are run by scripts/cuda-check.

    #[test]
    #[ignore = "needs libnvrtc"]
    fn nvrtc_probe_compiles() {
        compiler_ready().unwrap();
        for arch in ["sm_75", "sm_80", "sm_90"] {
            let compiled = translate("probe", PROBE, arch, &[]).unwrap();
            assert!(compiled.cubin.starts_with(b"\x7fELF"));
        }
    }

    #[test]
    #[ignore = "needs libnvrtc"]
    fn nvrtc_says_where_it_failed() {
        compiler_ready().unwrap();
        let text = "#line 7 \"some.cuh\"\nvoid broken( {}\n";
        let log = translate("bad", text, "sm_90", &[]).unwrap_err();
        assert!(log.contains("some.cuh(7): error"), "{log}");
        let log = translate("probe", PROBE, "sm_1", &[]).unwrap_err();
        assert!(log.contains("gpu-architecture"), "{log}");
        assert!(matches!(compile("nothing", "sm_90"), Err(DeviceError::Compile { .. })));
    }

    #[test]
    #[ignore = "needs libnvrtc"]
    fn nvrtc_is_asked_once() {
        let version = compiler_ready().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let get = |text: &str, arch: &str, version: &str| {
            cubin(&cache, "probe", text, arch, version).unwrap();
            std::fs::read_dir(folder.path()).unwrap().count()
        };
        assert_eq!(get(PROBE, "sm_90", &version), 1);
        assert_eq!(get(PROBE, "sm_90", &version), 1);
        assert_eq!(get(PROBE, "sm_80", &version), 2);
        assert_eq!(get(PROBE, "sm_90", "0.0"), 3);
        let other = format!("{PROBE}// more\n");
        assert_eq!(get(&other, "sm_90", &version), 4);
        // The file on disk is used: the compiler would not produce this.
        let key = key_of(PROBE, "sm_90", &version);
        cache.put("probe", key, b"kept");
        assert_eq!(cubin(&cache, "probe", PROBE, "sm_90", &version).unwrap(), b"kept");
    }
}
