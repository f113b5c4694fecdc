//! The kernels' sources, carried inside the program.
//!
//! A kernel file is a *stem*: `kernels/wah.cu` has the stem `wah`. It includes headers, `.cuh`
//! files of the same folder, by `#include "name.cuh"`, and nothing else. [`resolved`] puts the
//! headers in their places, so that a compiler needs no folder to look into: it gets one text, and
//! its messages still name the right file and line.
//!
//! A new file is added to [`STEMS`] or [`HEADERS`] here; a test fails until it is.

use std::fmt::Write;

/// The entry of a file of `kernels/` in the tables below.
macro_rules! file {
    ($name:literal, $extension:literal) => {
        ($name, include_str!(concat!("../kernels/", $name, $extension)))
    };
}

/// The files with kernels: stem and text.
pub const STEMS: &[(&str, &str)] = &[
    file!("columns", ".cu"),
    file!("compax", ".cu"),
    file!("compax2", ".cu"),
    file!("decode", ".cu"),
    file!("flow", ".cu"),
    file!("group", ".cu"),
    file!("hipes", ".cu"),
    file!("masc", ".cu"),
    file!("merge", ".cu"),
    file!("packed", ".cu"),
    file!("pieces", ".cu"),
    file!("plwah", ".cu"),
    file!("plwah_plus", ".cu"),
    file!("radix", ".cu"),
    file!("roaring", ".cu"),
    file!("rowmap", ".cu"),
    file!("runs", ".cu"),
    file!("scan", ".cu"),
    file!("secompax", ".cu"),
    file!("sets", ".cu"),
    file!("wah", ".cu"),
];

/// The files that they include: name, with extension, and text.
pub const HEADERS: &[(&str, &str)] = &[
    file!("threads.cuh", ""),
    file!("decode.cuh", ""),
    file!("groups.cuh", ""),
    file!("merge.cuh", ""),
    file!("piece.cuh", ""),
    file!("run.cuh", ""),
    file!("sort.cuh", ""),
    file!("triples.cuh", ""),
    file!("words.cuh", ""),
];

/// The text of a stem with all that it includes; each header is where it is first included.
pub fn resolved(stem: &str) -> Option<String> {
    let text = text_of(stem)?;
    Some(inlined(&format!("{stem}.cu"), text, HEADERS))
}

/// How many bytes each parameter of a kernel has, as its source declares them: 8 for a pointer and
/// for a `u64`, 4 for a `u32`.
///
/// A kernel is declared by `KERNEL wah_count(`, or, in a macro that is given the stem as `name`, by
/// `KERNEL name##_count(`.
pub fn parameters(stem: &str, kernel: &str) -> Option<Vec<usize>> {
    let text = resolved(stem)?;
    let by_macro = || parameters_in(&text, &format!("name##{}", kernel.strip_prefix(stem)?));
    parameters_in(&text, kernel).or_else(by_macro)
}

fn text_of(stem: &str) -> Option<&'static str> {
    STEMS.iter().find(|entry| entry.0 == stem).map(|entry| entry.1)
}

fn inlined(name: &str, text: &str, headers: &[(&str, &str)]) -> String {
    let (mut out, mut seen) = (String::new(), Vec::new());
    inline(name, text, headers, &mut seen, &mut out);
    out
}

fn inline<'a>(
    name: &str,
    text: &'a str,
    headers: &[(&str, &'a str)],
    seen: &mut Vec<&'a str>,
    out: &mut String,
) {
    mark(1, name, out);
    for (line, number) in text.lines().zip(1..) {
        match included(line) {
            // Missing: the compiler reports it better, with the line.
            Some(header) if headers.iter().all(|entry| entry.0 != header) => push_line(line, out),
            Some(header) if seen.contains(&header) => push_line("", out),
            Some(header) => {
                seen.push(header);
                for entry in headers.iter().filter(|entry| entry.0 == header) {
                    inline(header, entry.1, headers, seen, out);
                }
                mark(number + 1, name, out);
            }
            None => push_line(line, out),
        }
    }
}

/// Tells the compiler where the next line comes from.
fn mark(number: usize, name: &str, out: &mut String) {
    // Writing to a string does not fail.
    let _ = writeln!(out, "#line {number} \"{name}\"");
}

fn push_line(line: &str, out: &mut String) {
    out.push_str(line);
    out.push('\n');
}

/// The header that a line includes.
fn included(line: &str) -> Option<&str> {
    line.trim().strip_prefix("#include")?.trim_start().strip_prefix('"')?.split('"').next()
}

fn parameters_in(text: &str, kernel: &str) -> Option<Vec<usize>> {
    let head = format!("KERNEL {kernel}(");
    let rest = &text[text.find(&head)? + head.len()..];
    let list = rest.lines().map(without_comment).collect::<Vec<_>>().join(" ");
    let list = list.split_once(')')?.0;
    list.split(',').map(str::trim).filter(|one| !one.is_empty()).map(width).collect()
}

fn without_comment(line: &str) -> &str {
    let line = line.split_once("//").map_or(line, |halves| halves.0);
    // In a macro.
    line.trim_end().trim_end_matches('\\')
}

/// The bytes of a parameter such as `const u32 *starts` or `u32 rows`.
fn width(parameter: &str) -> Option<usize> {
    if parameter.contains('*') {
        return Some(8);
    }
    match parameter.split_whitespace().find(|word| *word != "const")? {
        "u64" => Some(8),
        "u32" => Some(4),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_in_the_table() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels");
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if let Some(stem) = name.strip_suffix(".cu") {
                assert!(text_of(stem).is_some(), "add {stem} to STEMS");
            } else if name.ends_with(".cuh") {
                assert!(HEADERS.iter().any(|entry| entry.0 == name), "add {name} to HEADERS");
            }
        }
    }

    #[test]
    fn nothing_is_left_to_include() {
        for (stem, _) in STEMS {
            let text = resolved(stem).unwrap();
            assert!(!text.lines().any(|line| line.trim_start().starts_with("#include")), "{stem}");
        }
        assert_eq!(resolved("nothing"), None);
    }

    #[test]
    fn headers_stand_once_and_lines_keep_their_names() {
        let headers = [("a.cuh", "#include \"b.cuh\"\nint a;"), ("b.cuh", "int b;\n")];
        let text = "#include \"a.cuh\"\n  #include  \"b.cuh\" // again\nint c;\n";
        let expected = "#line 1 \"c.cu\"\n#line 1 \"a.cuh\"\n#line 1 \"b.cuh\"\nint b;\n\
                        #line 2 \"a.cuh\"\nint a;\n#line 2 \"c.cu\"\n\nint c;\n";
        assert_eq!(inlined("c.cu", text, &headers), expected);
    }

    #[test]
    fn headers_that_include_each_other_end() {
        let headers = [("a.cuh", "#include \"b.cuh\"\n"), ("b.cuh", "#include \"a.cuh\"\n")];
        assert!(!inlined("c.cu", "#include \"a.cuh\"\n", &headers).contains("include"));
    }

    #[test]
    fn an_unknown_header_is_left_to_the_compiler() {
        assert!(inlined("c.cu", "#include \"x.cuh\"\n", &[]).contains("#include \"x.cuh\""));
        assert_eq!(included("#include <cuda.h>"), None);
    }

    #[test]
    fn the_parameters_of_every_kernel_are_known() {
        for (stem, _) in STEMS {
            let text = resolved(stem).unwrap();
            let heads = text.lines().filter_map(|line| line.trim().strip_prefix("KERNEL "));
            for head in heads {
                let kernel = head.split('(').next().unwrap().replace("name##", stem);
                assert!(parameters(stem, &kernel).is_some(), "{kernel} in {stem}");
            }
        }
        assert_eq!(parameters("wah", "nothing"), None);
        assert_eq!(parameters("nothing", "nothing_count"), None);
    }

    #[test]
    fn parameters_are_read_from_the_source() {
        let text = "KERNEL two(u32 a) {}\nKERNEL one(\n    const u8 *in,  // u32, not this\n    \
                    u64 n,\n    const u32 rows, u32 *const __restrict__ out) {}\n\
                    KERNEL none() {}\nKERNEL odd(float x) {}";
        assert_eq!(parameters_in(text, "one"), Some(vec![8, 8, 4, 8]));
        assert_eq!(parameters_in(text, "two"), Some(vec![4]));
        assert_eq!(parameters_in(text, "none"), Some(vec![]));
        assert_eq!(parameters_in(text, "odd"), None);
        assert_eq!(parameters_in(text, "on"), None);
        let text = "#define ALL(name) \\\n  KERNEL name##_go(u32 *a, \\\n  u64 b) { c(); }";
        assert_eq!(parameters_in(text, "name##_go"), Some(vec![8, 8]));
    }
}
