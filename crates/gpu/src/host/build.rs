//! Compiles the kernels of a stem for this machine, and loads them.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::{Entry, Library};
use crate::device::{DeviceError, Lack};

const KERNELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels");

/// Overflow wraps and pointers may be cast, as with the kernels' own compiler. A frame must be much
/// smaller than a fibre's stack. Loops are not replaced by library calls, whose reads and writes
/// would not be checked. The shim has the functions that the checks call.
const FLAGS: &[&str] = &[
    "-std=c++17",
    "-O2",
    "-g1",
    "-fPIC",
    "-fwrapv",
    "-fno-strict-aliasing",
    "-fno-exceptions",
    "-fvisibility=hidden",
    "-Wno-attributes",
    "-Werror=frame-larger-than=16384",
    "-fno-tree-loop-distribute-patterns",
    "-fsanitize=thread",
    "-fsanitize=alignment,bounds,shift-exponent,integer-divide-by-zero",
];

/// Only for GCC: the shim need not see function calls.
const FLAGS_GCC: &[&str] = &["--param=tsan-instrument-func-entry-exit=0"];

/// The text before the name of a kernel after preprocessing.
const MARK: &str = "__attribute__((noinline, visibility(\"hidden\"))) void";
const BOUNDS: &str = "__attribute__((shim_threads(";

type Slot = Arc<Mutex<Option<Arc<Library>>>>;

/// The compiler's command, and its version text.
pub(super) fn compiler() -> Result<&'static (String, String), DeviceError> {
    static COMPILER: OnceLock<Result<(String, String), DeviceError>> = OnceLock::new();
    COMPILER
        .get_or_init(|| find_compiler(std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned())))
        .as_ref()
        .map_err(Clone::clone)
}

fn find_compiler(command: String) -> Result<(String, String), DeviceError> {
    let missing = |why| DeviceError::Missing(Lack::HostCompiler { command: command.clone(), why });
    match Command::new(&command).arg("--version").output() {
        Err(error) => Err(missing(format!("cannot be run ({error})"))),
        Ok(output) if !output.status.success() => Err(missing("fails".to_owned())),
        Ok(output) => {
            let version = String::from_utf8_lossy(&output.stdout).into_owned();
            Ok((command, version))
        }
    }
}

/// The kernels of a stem, compiled once in a process.
pub(super) fn library(stem: &'static str) -> Result<Arc<Library>, DeviceError> {
    static LIBRARIES: OnceLock<Mutex<HashMap<&'static str, Slot>>> = OnceLock::new();
    let slot = {
        let libraries = LIBRARIES.get_or_init(Mutex::default);
        let mut libraries = libraries.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(libraries.entry(stem).or_default())
    };
    // Two stems may be compiled in parallel; a thread that asks for the same one waits.
    let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = &*slot {
        return Ok(Arc::clone(library));
    }
    let library = Arc::new(build(stem, source(stem))?);
    *slot = Some(Arc::clone(&library));
    Ok(library)
}

fn build(stem: &str, source: std::io::Result<String>) -> Result<Library, DeviceError> {
    let failed = |log: String| DeviceError::Compile { stem: stem.to_owned(), log };
    let (command, version) = compiler()?;
    let source = source.map_err(|error| failed(error.to_string()))?;
    let work = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
    let flags = flags(version);
    let text = preprocess(command, &flags, &source, work.path()).map_err(failed)?;
    let text = with_table(&text);

    let mut hasher = DefaultHasher::new();
    (version, &flags, &text).hash(&mut hasher);
    let name = format!("{stem}-{:016x}.so", hasher.finish());
    let kept = kept_folder().map(|folder| folder.join(&name));
    if let Some(kept) = kept.as_ref().filter(|kept| kept.exists())
        && let Ok(library) = load(kept)
    {
        return Ok(library);
    }
    let built = work.path().join(&name);
    compile(command, &flags, &text, work.path(), &built).map_err(failed)?;
    let path = kept.filter(|kept| keep(&built, kept)).unwrap_or(built);
    load(&path).map_err(|error| failed(error.to_string()))
}

/// The text of a stem with what it includes, each file once.
fn source(stem: &str) -> std::io::Result<String> {
    let folder = Path::new(KERNELS);
    let name = format!("{stem}.cu");
    let mut path = folder.join(&name);
    if !path.exists() {
        path = folder.join("shim").join(&name);
    }
    let (mut seen, mut out) = (Vec::new(), String::new());
    inline(&path, &name, &mut seen, &mut out)?;
    Ok(out)
}

fn inline(
    path: &Path,
    name: &str,
    seen: &mut Vec<String>,
    out: &mut String,
) -> std::io::Result<()> {
    // Writing to a string does not fail.
    let _ = writeln!(out, "#line 1 \"{name}\"");
    for (line, number) in std::fs::read_to_string(path)?.lines().zip(2..) {
        let included =
            line.trim().strip_prefix("#include \"").and_then(|rest| rest.split_once('"'));
        match included {
            None => out.push_str(line),
            Some((header, _)) if seen.iter().any(|one| one == header) => {}
            Some((header, _)) => {
                seen.push(header.to_owned());
                inline(&Path::new(KERNELS).join(header), header, seen, out)?;
                let _ = write!(out, "#line {number} \"{name}\"");
            }
        }
        out.push('\n');
    }
    Ok(())
}

fn preprocess(command: &str, flags: &[&str], source: &str, work: &Path) -> Result<String, String> {
    let shim = format!("#include \"{KERNELS}/shim/shim.hpp\"\n");
    std::fs::write(work.join("source.cpp"), shim + source).map_err(|error| error.to_string())?;
    let output =
        run(Command::new(command).current_dir(work).args(flags).arg("-E").arg("source.cpp"))?;
    // The name of the folder differs each time, and must not be part of the hash.
    Ok(output.replace(&*work.to_string_lossy(), ""))
}

fn compile(
    command: &str,
    flags: &[&str],
    text: &str,
    work: &Path,
    built: &Path,
) -> Result<(), String> {
    let (file, object) = (work.join("preprocessed.ii"), work.join("object.o"));
    std::fs::write(&file, text).map_err(|error| error.to_string())?;
    let mut compile = Command::new(command);
    compile.current_dir(work).args(flags).arg("-c").arg("-o").arg(&object).arg(&file);
    run(&mut compile)?;
    // Without the flags, which would link the sanitizer's library.
    run(Command::new(command).arg("-shared").arg("-o").arg(built).arg(&object)).map(|_| ())
}

fn flags(version: &str) -> Vec<&'static str> {
    let more = if version.contains("Free Software Foundation") { FLAGS_GCC } else { &[] };
    [FLAGS, more].concat()
}

/// The output of a command, or its error output if it fails.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let text = if output.status.success() { output.stdout } else { output.stderr };
    let text = String::from_utf8_lossy(&text).into_owned();
    if output.status.success() { Ok(text) } else { Err(text) }
}

/// The text with a table of its kernels and the function that launches them.
fn with_table(text: &str) -> String {
    let mut out = text.to_owned();
    out.push_str("\n# 1 \"table\"\nstatic const shim::Kernel shim_table[] = {\n");
    for (name, threads_max) in kernels(text) {
        let _ = writeln!(out, "shim::Described<{name}>::kernel(\"{name}\", {threads_max}),");
    }
    out.push_str(
        "{\"\", nullptr, 0, nullptr, 0}};\n\
         extern \"C\" __attribute__((visibility(\"default\")))\n\
         const char *tapdex_shim_launch(const char *name, unsigned blocks, unsigned threads,\n\
         unsigned shared, unsigned long long seed, void **args, const unsigned *sizes,\n\
         unsigned arg_count, const shim::Range *ranges, unsigned long range_count) {\n\
         return shim::launch(shim_table, sizeof shim_table / sizeof shim_table[0] - 1, name,\n\
         blocks, threads, shared, seed, args, sizes, arg_count, ranges, range_count);\n}\n",
    );
    out
}

/// The kernels of a text, and how many threads a block of each may have.
fn kernels(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(MARK) {
        rest = rest[at + MARK.len()..].trim_start();
        let mut threads_max = "1024";
        if let Some(bounds) = rest.strip_prefix(BOUNDS)
            && let Some((threads, after)) = bounds.split_once(")))")
        {
            threads_max = threads;
            rest = after.trim_start();
        }
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(0);
        let (name, after) = rest.split_at(end);
        if after.trim_start().starts_with('(') && !found.iter().any(|&(known, _)| known == name) {
            found.push((name, threads_max));
        }
    }
    found
}

/// Where libraries are kept from one process to the next: beside the program, which for a test is
/// inside Cargo's target folder.
fn kept_folder() -> Option<PathBuf> {
    let folder = std::env::current_exe().ok()?.parent()?.join("tapdex-shim");
    std::fs::create_dir_all(&folder).ok()?;
    Some(folder)
}

/// Puts a library where the next process finds it, completely or not at all; returns whether that
/// worked.
fn keep(built: &Path, kept: &Path) -> bool {
    let part = kept.with_extension(format!("{}.part", std::process::id()));
    let done = std::fs::copy(built, &part).and_then(|_| std::fs::rename(&part, kept)).is_ok();
    if !done {
        let _ = std::fs::remove_file(&part);
    }
    done
}

fn load(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: the library was built from the shim and the kernels, and has no initialisers that do
    // more than set its own variables.
    let loaded = unsafe { libloading::Library::new(path) }?;
    // SAFETY: the function that the table ends with has this type, and the pointer is kept beside
    // the library it points into.
    let entry = *unsafe { loaded.get::<Entry>(b"tapdex_shim_launch\0") }?;
    Ok(Library { path: path.to_owned(), entry: Mutex::new(entry), _loaded: loaded })
}

/// What the shim said, with the line of the source in place of an address of the library.
pub(super) fn with_line(library: &Path, said: &str) -> String {
    let Some((before, rest)) = said.split_once('@') else { return said.to_owned() };
    let Some((address, after)) = rest.split_once('@') else { return said.to_owned() };
    let place = run(Command::new("addr2line").arg("-ie").arg(library).arg(address))
        .map_or_else(|_| format!("library address {address}"), |lines| places(&lines));
    format!("{before}({place}){after}")
}

/// The places that `addr2line` names, without folders: the innermost, and those it was inlined
/// into.
fn places(lines: &str) -> String {
    let names = lines.lines().map(|line| line.rsplit('/').next().unwrap_or(line));
    names.collect::<Vec<_>>().join(", from ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(text: &str) -> Result<Library, String> {
        let source = format!("{}\n{text}", source("faults").unwrap());
        build("built", Ok(source)).map_err(|error| error.to_string())
    }

    #[test]
    fn no_compiler_is_said_with_a_way_out() {
        for command in ["no-such-compiler", "false"] {
            let said = find_compiler(command.to_owned()).unwrap_err().to_string();
            assert!(said.contains(command) && said.contains("name it with CXX"), "{said}");
        }
    }

    #[test]
    fn places_lose_their_folders() {
        assert_eq!(places("/a/b.cuh:3\nc.cu:20\n"), "b.cuh:3, from c.cu:20");
        assert_eq!(with_line(Path::new("none"), "no address"), "no address");
        assert_eq!(with_line(Path::new("none"), "at @0x10@"), "at (library address 0x10)");
    }

    #[test]
    fn kernels_are_found_with_their_bounds() {
        let text = format!(
            "{MARK} one(int a) {{}} {MARK} {BOUNDS}64 * 2))) two (int b) {{}} \
             {MARK}\n three(); {MARK} four; void five() {{}} {MARK} three() {{}}"
        );
        assert_eq!(kernels(&text), [("one", "1024"), ("two", "64 * 2"), ("three", "1024")]);
    }

    #[test]
    fn what_does_not_compile_says_where() {
        let said = built("#line 7 \"x.cu\"\nKERNEL wrong(u32 *out) { out = 1 }").unwrap_err();
        assert!(said.contains("x.cu:7:"), "{said}");
    }

    #[test]
    fn a_frame_as_large_as_a_stack_does_not_compile() {
        let with = |words: u32| {
            built(&format!(
                "KERNEL deep(u32 *out, u32 n) {{ volatile u32 room[{words}]; room[n] = 1; \
                 *out = room[0]; }}"
            ))
        };
        with(1000).unwrap();
        let said = with(16384).unwrap_err();
        assert!(said.contains("the frame size of 65"), "{said}");
    }

    #[test]
    fn words_that_need_a_newer_device_do_not_compile() {
        let said = built("KERNEL newer(u32 *out) { *out = __reduce_add_sync(ALL_LANES, 1u); }");
        assert!(said.unwrap_err().contains("__reduce_add_sync"));
    }
}
