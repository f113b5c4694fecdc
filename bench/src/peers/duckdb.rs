//! DuckDB, in a process of its own, and the header fields that it is given.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, bail, ensure};
use tapdex_engine::capture::{CaptureReader, Record};
use tapdex_engine::packet::{
    ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_MPLS, ETHERTYPE_RARP, Encap, Fragment,
    Headers, Tunnel, decode, protocol,
};

use crate::archive::captures::Capture;

const SCRIPT: &str = include_str!("../../peers/duckdb_peer.py");
/// What is added to a table where it is not there.
pub const MISSING: &str = "DuckDB is left out: the interpreter cannot import it. Install it \
                           (`python3 -m venv V; V/bin/pip install duckdb`) and run this with \
                           `--python V/bin/python`.";

/// Fields of a packet and their types, in the order of the columns. Number and time are those of
/// the packet; the others are what an index of ours has, too.
const COLUMNS: &[(&str, &str)] = &[
    ("number", "UINTEGER"),
    ("time", "UBIGINT"),
    ("len", "UINTEGER"),
    ("odd", "UTINYINT"),
    ("encap", "UTINYINT"),
    ("eth_dst", "UBIGINT"),
    ("eth_src", "UBIGINT"),
    ("eth_type", "USMALLINT"),
    ("vlan", "USMALLINT"),
    ("vlan_inner", "USMALLINT"),
    ("mpls", "UINTEGER"),
    ("ip_src", "UINTEGER"),
    ("ip_dst", "UINTEGER"),
    ("proto", "UTINYINT"),
    ("l4", "UTINYINT"),
    ("fragment", "UTINYINT"),
    ("port_src", "USMALLINT"),
    ("port_dst", "USMALLINT"),
    ("icmp_type", "UTINYINT"),
    ("icmp_code", "UTINYINT"),
    ("tcp_flags", "UTINYINT"),
    ("ip6_src_high", "UBIGINT"),
    ("ip6_src_low", "UBIGINT"),
    ("ip6_dst_high", "UBIGINT"),
    ("ip6_dst_low", "UBIGINT"),
    ("tunnel", "UTINYINT"),
    ("tunnel_id", "UINTEGER"),
    ("inner_type", "USMALLINT"),
    ("inner_src_high", "UBIGINT"),
    ("inner_src_low", "UBIGINT"),
    ("inner_dst_high", "UBIGINT"),
    ("inner_dst_low", "UBIGINT"),
    ("inner_l4", "UTINYINT"),
    ("inner_port_src", "USMALLINT"),
    ("inner_port_dst", "USMALLINT"),
];
/// Columns that an index does not have as fields.
const OF_PACKET: usize = 2;

/// The fields of a packet, in the order of [`COLUMNS`]; what a packet does not have is null, so
/// that the least and greatest values that Parquet keeps are of packets that have it.
fn fields(number: u64, record: &Record<'_>, headers: &Headers) -> [Option<u64>; COLUMNS.len()] {
    let halves = |address: u128| ((address >> 64) as u64, address as u64);
    let eth_type = headers.eth_type;
    let is_4 = eth_type == ETHERTYPE_IPV4;
    let is_6 = eth_type == ETHERTYPE_IPV6 && headers.wide;
    let has_4 = is_4 || [ETHERTYPE_ARP, ETHERTYPE_RARP].contains(&eth_type);
    let starts = (is_4 || is_6) && headers.fragment != Fragment::Later;
    let of = |protocols: &[u8]| starts && protocols.contains(&headers.l4);
    let has_ports = of(&[protocol::TCP, protocol::UDP, protocol::SCTP]);
    let is_icmp = of(&[protocol::ICMP, protocol::ICMP6]);
    let tags = match headers.encap {
        Encap::None | Encap::Mpls => 0,
        Encap::Tag => 1,
        Encap::TwoTags | Encap::ManyTags | Encap::TagsMpls => 2,
    };
    let is_tunnel = headers.wide && headers.tunnel != Tunnel::None;
    let (src_6, dst_6) = (halves(headers.ip6_src), halves(headers.ip6_dst));
    let inner = &headers.inner;
    let (src, dst) = (halves(inner.src), halves(inner.dst));
    let some = |is_there: bool, value: u64| is_there.then_some(value);
    [
        Some(number),
        Some(record.time_ns),
        Some(record.wire_len.into()),
        Some(headers.odd.into()),
        Some(headers.encap as u64),
        Some(headers.eth_dst),
        Some(headers.eth_src),
        Some(eth_type.into()),
        some(tags > 0, headers.vlan.into()),
        some(tags > 1, headers.vlan_inner.into()),
        some(eth_type == ETHERTYPE_MPLS, headers.mpls.into()),
        some(has_4, headers.ip_src.into()),
        some(has_4, headers.ip_dst.into()),
        some(is_4 || is_6, headers.proto.into()),
        some(is_4 || is_6, headers.l4.into()),
        some(is_4 || is_6, headers.fragment as u64),
        some(has_ports, headers.port_src.into()),
        some(has_ports, headers.port_dst.into()),
        some(is_icmp, headers.icmp_type.into()),
        some(is_icmp, headers.icmp_code.into()),
        some(of(&[protocol::TCP]), headers.tcp_flags.into()),
        some(is_6, src_6.0),
        some(is_6, src_6.1),
        some(is_6, dst_6.0),
        some(is_6, dst_6.1),
        some(is_tunnel, headers.tunnel as u64),
        some(is_tunnel, headers.tunnel_id.into()),
        some(is_tunnel, inner.eth_type.into()),
        some(is_tunnel, src.0),
        some(is_tunnel, src.1),
        some(is_tunnel, dst.0),
        some(is_tunnel, dst.1),
        some(is_tunnel, inner.l4.into()),
        some(is_tunnel, inner.port_src.into()),
        some(is_tunnel, inner.port_dst.into()),
    ]
}

/// Writes the header fields of a capture as CSV, a line a packet.
pub fn write_csv(capture: &Capture, path: &Path) -> anyhow::Result<()> {
    let mut reader = CaptureReader::open(File::open(&capture.path)?)?;
    let mut target = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let (mut headers, mut number) = (Headers::default(), 0);
    let mut line = Vec::new();
    while let Some(record) = reader.next()? {
        decode(record.link, record.swapped, record.data, &mut headers);
        line.clear();
        for field in fields(number, &record, &headers) {
            if let Some(value) = field {
                push_decimal(value, &mut line);
            }
            line.push(b',');
        }
        line.pop();
        line.push(b'\n');
        target.write_all(&line)?;
        number += 1;
    }
    target.flush()?;
    ensure!(number == capture.packets, "{}: {number} packets were read", capture.name);
    Ok(())
}

/// Appends a number, without the detours of `write!`: DuckDB is not to wait for us.
fn push_decimal(mut value: u64, target: &mut Vec<u8>) {
    let start = target.len();
    while value > 9 || target.len() == start {
        target.push(b'0' + (value % 10) as u8);
        value /= 10;
    }
    if value > 0 {
        target.push(b'0' + value as u8);
    }
    target[start..].reverse();
}

/// In which order the rows of a Parquet file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// As the packets came.
    Arrival,
    /// By flow, as in our index: packets of a flow lie together, both directions of it.
    Flow,
}

/// A way to write a Parquet file.
#[derive(Debug)]
pub struct Way {
    /// What tables call it.
    pub name: &'static str,
    /// Stem of the file, and name of the view of it.
    pub stem: &'static str,
    pub rows: Rows,
    /// Whether row groups have bloom filters.
    pub has_filters: bool,
    /// What else is said to DuckDB's COPY.
    options: &'static str,
    /// Whether it is searched.
    pub is_searched: bool,
}

/// Snappy and version 1, which DuckDB does of itself.
const USUAL: &str = "COMPRESSION snappy, PARQUET_VERSION V1";

/// The Parquet files that are made: in either order with and without bloom filters, and one with
/// what makes it smaller.
pub const WAYS: [Way; 5] = [
    Way {
        name: "by arrival",
        stem: "arrival",
        rows: Rows::Arrival,
        has_filters: false,
        options: USUAL,
        is_searched: true,
    },
    Way {
        name: "by flow",
        stem: "flow",
        rows: Rows::Flow,
        has_filters: false,
        options: USUAL,
        is_searched: true,
    },
    Way {
        name: "by arrival, bloom filters",
        stem: "arrival_bloom",
        rows: Rows::Arrival,
        has_filters: true,
        options: USUAL,
        is_searched: true,
    },
    Way {
        name: "by flow, bloom filters",
        stem: "flow_bloom",
        rows: Rows::Flow,
        has_filters: true,
        options: USUAL,
        is_searched: true,
    },
    Way {
        name: "by flow, zstd, version 2",
        stem: "flow_zstd",
        rows: Rows::Flow,
        has_filters: false,
        options: "COMPRESSION zstd, PARQUET_VERSION V2",
        is_searched: false,
    },
];

/// Columns that questions with few answers are about, for which bloom filters are of use.
const PROBED: [&str; 10] = [
    "eth_dst",
    "eth_src",
    "ip_src",
    "ip_dst",
    "port_src",
    "port_dst",
    "ip6_src_high",
    "ip6_src_low",
    "ip6_dst_high",
    "ip6_dst_low",
];
/// An IPv4 address that no packet has as its source.
const ABSENT: u32 = u32::MAX;

/// The bloom filters of a Parquet file.
#[derive(Debug, Clone, Copy)]
pub struct Filters {
    /// Bytes of all of them.
    pub bytes: u64,
    /// Column chunks of addresses and ports that have any, and how many of them have a filter.
    pub chunks: u64,
    pub with_filter: u64,
    /// Row groups, and how many of them their filter rules out for an absent address.
    pub groups: u64,
    pub ruled_out: u64,
}

/// DuckDB, waiting for statements.
pub struct DuckDb {
    child: Child,
    words: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Its version and how many threads it uses.
    pub version: String,
}

/// What a statement took, and the first cell of its answer.
pub struct Answer {
    pub seconds: f64,
    pub cell: String,
}

impl DuckDb {
    /// Starts it; `None` if the interpreter is not there or does not find the module.
    pub fn start(python: &Path) -> anyhow::Result<Option<Self>> {
        let mut command = Command::new(python);
        command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(mut child) = command.spawn() else { return Ok(None) };
        let words = child.stdin.take();
        let mut answers = BufReader::new(child.stdout.take().context("no pipe from DuckDB")?);
        let mut line = String::new();
        answers.read_line(&mut line)?;
        let mut duckdb = Self { child, words, answers, version: String::new() };
        let parts: Vec<&str> = line.trim_end().split('\t').collect();
        match parts[..] {
            ["ready", version, threads] => {
                duckdb.version = format!("DuckDB {version}, {threads} threads");
            }
            ["missing"] => return Ok(None),
            _ => bail!("{} says {line:?} instead of DuckDB's version", python.display()),
        }
        // What it learned of a file stays in memory, as it does where one asks again and again.
        duckdb.run("SET parquet_metadata_cache = true")?;
        Ok(Some(duckdb))
    }

    /// Runs a statement.
    pub fn run(&mut self, statement: &str) -> anyhow::Result<Answer> {
        let one_line = statement.split_whitespace().collect::<Vec<_>>().join(" ");
        let words = self.words.as_mut().context("DuckDB was told to end")?;
        writeln!(words, "{one_line}")?;
        words.flush()?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let parts: Vec<&str> = line.trim_end_matches('\n').split('\t').collect();
        match parts[..] {
            ["done", seconds, cell] => {
                Ok(Answer { seconds: seconds.parse()?, cell: cell.to_owned() })
            }
            _ => bail!("DuckDB says {:?} to {one_line:?}", line.trim_end()),
        }
    }

    /// Runs a statement that answers with a number.
    pub fn number(&mut self, statement: &str) -> anyhow::Result<(f64, u64)> {
        let Answer { seconds, cell } = self.run(statement)?;
        let number = cell.parse().with_context(|| format!("{cell:?} is no number: {statement}"))?;
        Ok((seconds, number))
    }

    /// Takes a CSV of header fields into memory, in place of what was there; seconds.
    pub fn load(&mut self, csv: &Path) -> anyhow::Result<f64> {
        let types: Vec<String> =
            COLUMNS.iter().map(|(name, kind)| format!("'{name}': '{kind}'")).collect();
        let statement = format!(
            "CREATE OR REPLACE TABLE packets AS SELECT * FROM read_csv({}, header = false, \
             auto_detect = false, delim = ',', columns = {{{}}})",
            quoted(csv),
            types.join(", ")
        );
        Ok(self.run(&statement)?.seconds)
    }

    /// Writes what was loaded as Parquet; seconds.
    pub fn write(&mut self, way: &Way, target: &Path) -> anyhow::Result<f64> {
        let order = match way.rows {
            Rows::Arrival => String::new(),
            Rows::Flow => format!(" ORDER BY {}", flow_order()),
        };
        let statement = format!(
            "COPY (SELECT * FROM packets{order}) TO {} (FORMAT parquet, WRITE_BLOOM_FILTER {}, {})",
            quoted(target),
            way.has_filters,
            way.options
        );
        Ok(self.run(&statement)?.seconds)
    }

    /// Forgets what was loaded.
    pub fn unload(&mut self) -> anyhow::Result<()> {
        self.run("DROP TABLE packets").map(drop)
    }

    /// Lets queries name a Parquet file.
    pub fn view(&mut self, way: &Way, parquet: &Path) -> anyhow::Result<()> {
        let source = format!("read_parquet({})", quoted(parquet));
        self.run(&format!("CREATE OR REPLACE VIEW {} AS SELECT * FROM {source}", way.stem))?;
        Ok(())
    }

    /// Bytes of the columns of a Parquet file that an index of ours has as fields.
    pub fn field_bytes(&mut self, parquet: &Path) -> anyhow::Result<u64> {
        let others: Vec<String> =
            COLUMNS[..OF_PACKET].iter().map(|(name, _)| format!("'{name}'")).collect();
        let statement = format!(
            "SELECT CAST(sum(total_compressed_size) AS BIGINT) FROM parquet_metadata({}) \
             WHERE path_in_schema NOT IN ({})",
            quoted(parquet),
            others.join(", ")
        );
        Ok(self.number(&statement)?.1)
    }

    /// What bloom filters a Parquet file has.
    pub fn filters(&mut self, parquet: &Path) -> anyhow::Result<Filters> {
        let file = quoted(parquet);
        let of_file = |what: &str| format!("SELECT {what} FROM parquet_metadata({file})");
        let probed: Vec<String> = PROBED.iter().map(|name| format!("'{name}'")).collect();
        let chunks = format!(
            "{} WHERE path_in_schema IN ({}) AND stats_null_count < num_values",
            of_file("count(*)"),
            probed.join(", ")
        );
        let probe = format!(
            "SELECT count(*) FROM parquet_bloom_probe({file}, 'ip_src', {ABSENT}::UINTEGER) \
             WHERE bloom_filter_excludes"
        );
        let mut number = |statement: &str| anyhow::Ok(self.number(statement)?.1);
        Ok(Filters {
            bytes: number(&of_file("CAST(coalesce(sum(bloom_filter_length), 0) AS BIGINT)"))?,
            chunks: number(&chunks)?,
            with_filter: number(&format!("{chunks} AND bloom_filter_offset IS NOT NULL"))?,
            groups: number(&of_file("count(DISTINCT row_group_id)"))?,
            ruled_out: number(&probe)?,
        })
    }
}

impl Drop for DuckDb {
    fn drop(&mut self) {
        // It ends when there is nothing to read any more.
        self.words.take();
        drop(self.child.wait());
    }
}

/// Both directions of a flow sort alike: by the smaller end, then by the greater one.
fn flow_order() -> String {
    let ends = [("ip_src", "ip_dst"), ("port_src", "port_dst")];
    let [(src, dst), (port_src, port_dst)] = ends;
    let six = ["high", "low"].map(|half| {
        let (src, dst) = (format!("ip6_src_{half}"), format!("ip6_dst_{half}"));
        format!("least({src}, {dst}), greatest({src}, {dst})")
    });
    format!(
        "encap, eth_type, least({src}, {dst}), greatest({src}, {dst}), {}, proto, \
         least({port_src}, {port_dst}), greatest({port_src}, {port_dst}), number",
        six.join(", ")
    )
}

/// A path as SQL writes it.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_decimal() {
        for value in [0, 7, 9, 10, 99, 100, 12_345, 1_000_000, u64::MAX] {
            let mut text = b"x".to_vec();
            push_decimal(value, &mut text);
            assert_eq!(String::from_utf8(text).unwrap(), format!("x{value}"));
        }
    }
}
