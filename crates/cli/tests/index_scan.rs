//! `tapdex index-file` on random tables: every answer is compared with a scan.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod folder;

use folder::Folder;
use tapdex_bitmap::sample::Random;

const NAMES: [&str; 6] = ["a", "b", "c", "ip", "mac", "six"];
const BITS: [u32; 6] = [8, 16, 24, 32, 48, 128];

struct Table(Vec<[u128; 6]>);

/// Values close together, so that questions find something.
fn value(random: &mut Random, field: usize) -> u128 {
    let few = u128::from(random.below(12));
    match NAMES[field] {
        "a" => few * 20,
        "b" => few * 5_000 + 7,
        "c" => few << 15 | 3,
        "ip" => 0x0A00_0000 | few << 7,
        "mac" => 0x001B_2100_0000 | few << 20,
        _ => 0x2001_0DB8 << 96 | few << 62 | few,
    }
}

fn text(random: &mut Random, field: usize, value: u128) -> String {
    let number = match random.below(3) {
        0 => format!("{value:#x}"),
        _ => value.to_string(),
    };
    let bytes = value.to_le_bytes();
    match (NAMES[field], random.below(4)) {
        (_, 0) => number,
        ("ip", _) => format!("{}.{}.{}.{}", bytes[3], bytes[2], bytes[1], bytes[0]),
        ("mac", _) => {
            let pairs: Vec<_> = bytes[..6].iter().rev().map(|b| format!("{b:02x}")).collect();
            pairs.join(":")
        }
        ("six", _) => std::net::Ipv6Addr::from(value).to_string(),
        _ => number,
    }
}

impl Table {
    fn sample(random: &mut Random, rows: usize) -> Self {
        let row = |_| std::array::from_fn(|field| value(random, field));
        Self((0..rows).map(row).collect())
    }

    fn csv(&self, random: &mut Random) -> String {
        let mut csv = NAMES.join(",") + ",time\n";
        for (n, row) in self.0.iter().enumerate() {
            for (field, &value) in row.iter().enumerate() {
                csv += &text(random, field, value);
                csv.push(',');
            }
            csv += &format!("{}\n", time(n));
        }
        csv
    }

    fn write_bytes(&self, folder: &Folder) {
        for (field, name) in NAMES.iter().enumerate() {
            let len = BITS[field] as usize / 8;
            let values = self.0.iter().map(|row| row[field].to_le_bytes()[..len].to_vec());
            folder.write(name, values.collect::<Vec<_>>().concat());
        }
        let times: Vec<_> = (0..self.0.len()).map(|n| time(n).to_le_bytes()).collect();
        folder.write("time", times.as_flattened());
    }
}

fn time(row: usize) -> u64 {
    1_700_000_000_000_000_000 + 17 * row as u64 % 1_000
}

type ValueTest = Box<dyn Fn(u128) -> bool>;
type Test = Box<dyn Fn(&[u128; 6]) -> bool>;

/// A condition as text, and as a test.
fn condition(random: &mut Random) -> (String, Test) {
    let field = random.below(6) as usize;
    let (name, bits) = (NAMES[field], BITS[field]);
    let (mut items, mut tests): (Vec<String>, Vec<ValueTest>) = (vec![], vec![]);
    for _ in 0..1 + random.below(3) {
        let one = value(random, field);
        let other = value(random, field);
        let (first, last) = (one.min(other), one.max(other));
        match random.below(4) {
            0 => {
                items.push(format!(
                    "{}..{}",
                    text(random, field, first),
                    text(random, field, last)
                ));
                tests.push(Box::new(move |value| (first..=last).contains(&value)));
            }
            1 => {
                let prefix = random.below(bits + 1);
                items.push(format!("{}/{prefix}", text(random, field, one)));
                let shift = bits - prefix;
                let head = move |value: u128| value.checked_shr(shift).unwrap_or(0);
                tests.push(Box::new(move |value| head(value) == head(one)));
            }
            _ => {
                items.push(text(random, field, one));
                tests.push(Box::new(move |value| value == one));
            }
        }
    }
    let negated = random.below(3) == 0;
    let sign = if negated { "!=" } else { "=" };
    let test = move |row: &[u128; 6]| tests.iter().any(|test| test(row[field])) != negated;
    (format!("{name}{sign}{}", items.join(",")), Box::new(test))
}

fn check(folder: &Folder, table: &Table, file: &str, random: &mut Random, questions: usize) {
    assert!(folder.run(&format!("verify {file}")).done().starts_with("sound: "));
    for _ in 0..questions {
        let conditions: Vec<_> = (0..1 + random.below(3)).map(|_| condition(random)).collect();
        let any = random.below(2) == 0;
        let holds = |row: &[u128; 6]| match any {
            true => conditions.iter().any(|(_, test)| test(row)),
            false => conditions.iter().all(|(_, test)| test(row)),
        };
        let rows = table.0.iter().enumerate().filter(|(_, row)| holds(row));
        let expected: String = rows.map(|(row, _)| format!("{row}\t{}\n", time(row))).collect();
        let texts: Vec<&str> = conditions.iter().map(|(text, _)| text.as_str()).collect();
        let any = if any { "--any" } else { "" };
        let args = format!("get {file} {} {any} --times", texts.join(" "));
        assert_eq!(folder.run(&args).done(), expected, "{args}");
        let count = folder.run(&args.replace("--times", "--count")).done();
        assert_eq!(count.trim_end(), expected.lines().count().to_string(), "{args}");
    }
}

#[test]
fn answers_are_those_of_a_scan() {
    let fields = NAMES.iter().zip(BITS).map(|(name, bits)| format!("--field {name}:{bits}"));
    let fields = fields.collect::<Vec<_>>().join(" ");
    let with_files = NAMES.iter().zip(BITS).map(|(n, bits)| format!("--field {n}:{bits}={n}"));
    let with_files = with_files.collect::<Vec<_>>().join(" ") + " --field time:64=time";
    for (seed, rows) in (0..).zip([1, 130, 2_000, 70_000]) {
        let random = &mut Random::new(seed);
        let (folder, table) = (Folder::new(), Table::sample(random, rows));
        folder.write("t.csv", table.csv(random));
        table.write_bytes(&folder);
        let build = |flags: &str, out: &str| {
            folder.run(&format!("build --time time {flags} -o {out}")).done();
        };
        build(&format!("t.csv {fields}"), "csv.tdx");
        build(&with_files, "raw.tdx");
        assert_eq!(folder.read("csv.tdx"), folder.read("raw.tdx"));
        build("t.csv", "found.tdx");
        build(&format!("{with_files} --digits 16"), "short.tdx");
        build(&format!("{with_files} --digits 8 --codec compax2"), "byte.tdx");
        build(&format!("{with_files} --sort-by ip"), "sorted.tdx");
        build(&format!("t.csv {fields} --sort-by six,b,ip"), "sorted-more.tdx");
        for file in ["csv", "short", "byte", "sorted", "sorted-more"] {
            check(&folder, &table, &format!("{file}.tdx"), random, 12);
        }
        assert!(folder.run("verify found.tdx").done().starts_with("sound: "));
        assert!(folder.run("info sorted.tdx").done().contains("order sorted"));
    }
}

#[test]
fn sorting_makes_a_table_with_order_in_it_smaller() {
    let folder = Folder::new();
    let mut random = Random::new(9);
    let values: Vec<u8> = (0..50_000).map(|_| random.below(50).to_le_bytes()[0]).collect();
    folder.write("a", values);
    folder.run("build -o a.tdx --field a:8=a --codec masc").done();
    folder.run("build -o s.tdx --field a:8=a --codec masc --sort-by a").done();
    let bitmaps = |file: &str| -> u64 {
        let info = folder.run(&format!("info {file}")).done();
        let line = info.lines().find(|line| line.starts_with("bitmaps")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    assert!(100 * bitmaps("s.tdx") < bitmaps("a.tdx"));
    assert_eq!(folder.rows("a.tdx a=7"), folder.rows("s.tdx a=7"));
}
