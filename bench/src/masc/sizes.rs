//! Tables 2 to 4 and figures 19 to 21: sizes, in the paper's setting and in others.

use tapdex_bench::tuples::{self, NAMES, Order, Tuple, TupleSource};
use tapdex_bench::windows::{self, Zeros, encode, for_each_bitmap};
use tapdex_bitmap::{ALL_CODECS, Codec};
use tapdex_engine::index::{Builder, ColumnIndex, CpuBuilder, Digits};
use tapdex_report::{Bar, Bars, Plot, Report, Sheet};

/// Table 2: bits of each byte's bitmaps in PLWAH, COMPAX and MASC. The paper gives no unit; every
/// figure divides by 32, and section V.C counts as many words as bits would be.
pub const PUBLISHED: [[u64; 3]; 12] = [
    [54_214_560, 51_052_672, 45_437_856],
    [55_329_248, 54_872_928, 45_627_296],
    [56_368_288, 56_141_312, 45_804_480],
    [57_185_856, 57_092_320, 45_922_496],
    [54_510_304, 50_742_688, 45_518_272],
    [56_336_512, 54_793_568, 45_813_056],
    [56_791_328, 56_233_472, 45_873_216],
    [57_105_536, 56_848_032, 45_911_968],
    [53_636_416, 54_011_232, 45_272_704],
    [52_786_176, 52_992_608, 44_948_416],
    [52_374_976, 53_180_640, 45_143_136],
    [50_406_464, 51_223_744, 44_312_960],
];
/// Packets that table 2 is of.
pub const PUBLISHED_PACKETS: f64 = 13_578_496.0;
/// The codecs of table 2.
pub const THREE: [Codec; 3] = [Codec::Plwah, Codec::Compax2, Codec::Masc];

/// How the rows are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Windows, each with bitmaps of its own.
    Windows(Zeros),
    /// The whole column at once.
    Whole,
}

/// The settings that are compared.
pub const SETTINGS: [(&str, Order, Layout); 7] = [
    ("order of arrival, windows", Order::Arrival, Layout::Windows(Zeros::LeftOut)),
    ("hash order, windows, zeros apart", Order::Hash, Layout::Windows(Zeros::Apart)),
    ("hash order, windows, zeros joined", Order::Hash, Layout::Windows(Zeros::Joined)),
    ("hash order, windows", Order::Hash, Layout::Windows(Zeros::LeftOut)),
    ("hash order, whole columns", Order::Hash, Layout::Whole),
    ("flow order, windows", Order::Flow, Layout::Windows(Zeros::LeftOut)),
    ("flow order, whole columns", Order::Flow, Layout::Whole),
];
/// The setting of the paper, as far as it can be told, and ours.
pub const PAPER: usize = 1;
pub const OURS: usize = 6;

/// Codecs that are measured: those whose size does not grow with the number of values alone.
pub fn codecs() -> impl Iterator<Item = Codec> {
    ALL_CODECS.into_iter().filter(|codec| !matches!(codec, Codec::Hipes(_)))
}

fn of(sizes: &[f64], wanted: Codec) -> f64 {
    codecs().zip(sizes).find(|(codec, _)| *codec == wanted).map_or(0.0, |(_, &size)| size)
}

pub fn percent(size: f64, of: f64) -> f64 {
    100.0 * (size / of - 1.0)
}

/// Bytes a packet by codec, for each byte of the tuple.
struct Measured {
    source: TupleSource,
    setting: usize,
    bytes: Vec<Vec<f64>>,
}

impl Measured {
    fn all(&self) -> Vec<f64> {
        self.first(self.bytes.len())
    }

    /// The first so many bytes together.
    fn first(&self, bytes: usize) -> Vec<f64> {
        let sum = |at: usize| self.bytes[..bytes].iter().map(|sizes| sizes[at]).sum();
        (0..codecs().count()).map(sum).collect()
    }
}

/// All data in all settings.
pub struct Settings {
    measured: Vec<Measured>,
    flows: Sheet,
}

impl Settings {
    pub fn new() -> Self {
        let headings = ["data", "packets", "flows", "packets a flow", "flows of one packet, %"];
        Self { measured: vec![], flows: Sheet::new("masc-data", "The data", &headings) }
    }

    /// Measures one source in all settings that it has.
    pub fn measure(&mut self, source: &TupleSource, mut tuples: Vec<Tuple>) -> anyhow::Result<()> {
        for (setting, (_, order, layout)) in SETTINGS.into_iter().enumerate() {
            if order == Order::Arrival && !source.has_arrival() {
                continue;
            }
            tuples::sort(&mut tuples, order);
            let mut bytes = Vec::new();
            for byte in 0..NAMES.len() {
                let sizes = sizes(&tuples::column(&tuples, byte), layout)?;
                bytes.push(
                    sizes.into_iter().map(|size| size as f64 / tuples.len() as f64).collect(),
                );
            }
            self.measured.push(Measured { source: source.clone(), setting, bytes });
        }
        // In flow order since the last setting.
        let flows = tuples::flows(&tuples);
        let lone = tuples.chunk_by(|a, b| a == b).filter(|flow| flow.len() == 1).count();
        self.flows.row(vec![
            source.name(),
            tuples.len().to_string(),
            flows.to_string(),
            format!("{:.1}", tuples.len() as f64 / flows as f64),
            format!("{:.1}", 100.0 * lone as f64 / flows as f64),
        ]);
        Ok(())
    }

    /// Tables of all settings together, and of the bytes in the paper's setting and in ours.
    pub fn report(&self, report: &mut Report<'_>) -> anyhow::Result<()> {
        report.table(&self.flows, None)?;
        self.totals(report)?;
        self.gains(report)?;
        for measured in self.measured.iter().filter(|found| is_shown(&found.source)) {
            match measured.setting {
                PAPER => {
                    for (figure, what, from, to) in [
                        (19, "source IP", 0, 4),
                        (20, "destination IP", 4, 8),
                        (21, "ports", 8, 12),
                    ] {
                        figure_of_bytes(measured, figure, what, from..to, report)?;
                    }
                }
                OURS => all_bytes(measured, report)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn totals(&self, report: &mut Report<'_>) -> anyhow::Result<()> {
        let names: Vec<&str> = codecs().map(Codec::name).collect();
        let mut headings = vec!["data", "rows"];
        headings.extend(&names);
        headings.extend(["MASC to PLWAH, %", "published", "to COMPAX2, %", "published"]);
        let title = "All settings: bytes a packet, 13 columns together";
        let mut sheet = Sheet::new("masc-settings", title, &headings);
        let sum = |at: usize| PUBLISHED.iter().map(|bits| bits[at] as f64).sum::<f64>();
        for found in &self.measured {
            let all = found.all();
            let mut cells = vec![found.source.name(), SETTINGS[found.setting].0.to_owned()];
            cells.extend(all.iter().map(|size| format!("{size:.3}")));
            let same = found.first(PUBLISHED.len());
            for (codec, at) in [(Codec::Plwah, 0), (Codec::Compax2, 1)] {
                cells.push(format!("{:.1}", percent(of(&same, Codec::Masc), of(&same, codec))));
                cells.push(match found.setting == PAPER {
                    true => format!("{:.1}", percent(sum(2), sum(at))),
                    false => "-".to_owned(),
                });
            }
            sheet.row(cells);
        }
        sheet
            .remarks
            .push("percentages: the 12 bytes of table 2 together, without protocol".into());
        Ok(report.table(&sheet, None)?)
    }

    /// The paper's setting over ours, for MASC.
    fn gains(&self, report: &mut Report<'_>) -> anyhow::Result<()> {
        let headings = ["data", "paper's setting", "flow order, whole columns", "times smaller"];
        let title = "MASC, bytes a packet: the paper's setting and ours";
        let mut sheet = Sheet::new("masc-gain", title, &headings);
        let (unit, mark) = ("bytes a packet, flow order, whole columns", "the paper's setting");
        let mut bars = Bars {
            title: title.to_owned(),
            unit: unit.to_owned(),
            mark: Some(mark.to_owned()),
            bars: vec![],
        };
        let masc = |found: &Measured| of(&found.all(), Codec::Masc);
        let papers = self.measured.iter().filter(|found| found.setting == PAPER);
        let ours = self.measured.iter().filter(|found| found.setting == OURS);
        for (paper, ours) in papers.zip(ours) {
            let (was, is) = (masc(paper), masc(ours));
            let label = ours.source.name();
            let cells = [format!("{was:.3}"), format!("{is:.3}"), format!("{:.1}", was / is)];
            sheet.row(std::iter::once(label.clone()).chain(cells).collect());
            bars.bars.push(Bar { label, value: is, mark: Some(was) });
        }
        Ok(report.table(&sheet, Some(&Plot::Bars(bars)))?)
    }
}

/// Whether a source is shown byte by byte.
fn is_shown(source: &TupleSource) -> bool {
    match source {
        TupleSource::Capture(_) => source.name() == "composite-A",
        _ => true,
    }
}

fn figure_of_bytes(
    found: &Measured,
    figure: usize,
    what: &str,
    bytes: std::ops::Range<usize>,
    report: &mut Report<'_>,
) -> anyhow::Result<()> {
    let source = found.source.name();
    let title = format!("Table 2, figure {figure}: {what}, {source}, bytes a packet");
    let headings = [
        "byte",
        "plwah",
        "published",
        "compax2",
        "published",
        "masc",
        "published",
        "to PLWAH, %",
        "published",
        "to COMPAX2, %",
        "published",
    ];
    let name = format!("masc-figure{figure}-{}", found.source.slug());
    let mut sheet = Sheet::new(&name, &title, &headings);
    let mut bars = Bars {
        title,
        unit: "bytes a packet, in the paper's setting".to_owned(),
        mark: Some("published".to_owned()),
        bars: vec![],
    };
    for byte in bytes {
        let sizes = THREE.map(|codec| of(&found.bytes[byte], codec));
        let published = PUBLISHED[byte].map(|bits| bits as f64 / 8.0 / PUBLISHED_PACKETS);
        let mut cells = vec![NAMES[byte].to_owned()];
        for ((codec, size), published) in THREE.into_iter().zip(sizes).zip(published) {
            cells.extend([format!("{size:.3}"), format!("{published:.3}")]);
            let label = format!("{}, {codec}", NAMES[byte]);
            bars.bars.push(Bar { label, value: size, mark: Some(published) });
        }
        for at in [0, 1] {
            cells.push(format!("{:.1}", percent(sizes[2], sizes[at])));
            cells.push(format!("{:.1}", percent(published[2], published[at])));
        }
        sheet.row(cells);
    }
    Ok(report.table(&sheet, Some(&Plot::Bars(bars)))?)
}

/// All bytes and all codecs.
fn all_bytes(found: &Measured, report: &mut Report<'_>) -> anyhow::Result<()> {
    let names: Vec<&str> = codecs().map(Codec::name).collect();
    let mut headings = vec!["byte"];
    headings.extend(&names);
    headings.push("MASC to PLWAH, %");
    let (setting, source) = (SETTINGS[found.setting].0, found.source.name());
    let title = format!("{source}, {setting}: bytes a packet");
    let name = format!("masc-flow-{}", found.source.slug());
    let mut sheet = Sheet::new(&name, &title, &headings);
    let all = found.all();
    let mut bars =
        Bars { title, unit: "bytes a packet, 13 columns".to_owned(), mark: None, bars: vec![] };
    for (what, sizes) in NAMES.iter().zip(&found.bytes).chain([(&"all", &all)]) {
        let mut cells = vec![(*what).to_owned()];
        cells.extend(sizes.iter().map(|size| format!("{size:.3}")));
        cells.push(format!("{:.1}", percent(of(sizes, Codec::Masc), of(sizes, Codec::Plwah))));
        sheet.row(cells);
    }
    for (label, &value) in names.iter().zip(&all) {
        bars.bars.push(Bar { label: (*label).to_owned(), value, mark: None });
    }
    Ok(report.table(&sheet, Some(&Plot::Bars(bars)))?)
}

/// The bytes of a column's bitmaps, by codec.
pub fn sizes(column: &[u8], layout: Layout) -> anyhow::Result<Vec<u64>> {
    let Layout::Windows(zeros) = layout else {
        return codecs().map(|codec| whole(column, codec)).collect();
    };
    let (mut sizes, mut target) = (vec![0; codecs().count()], Vec::new());
    for_each_bitmap(column, windows::ROWS, |_, runs, rows| {
        for (codec, size) in codecs().zip(&mut sizes) {
            *size += encode(codec, runs, rows, zeros, &mut target) as u64;
        }
    });
    Ok(sizes)
}

fn whole(column: &[u8], codec: Codec) -> anyhow::Result<u64> {
    let mut index = ColumnIndex::default();
    CpuBuilder::new(0).build(Digits::Bytes(column), codec, &mut index)?;
    Ok(index.offsets.last().copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column() -> Vec<u8> {
        (0..windows::ROWS as u32).map(|row| (row * row / 90) as u8 % 9).collect()
    }

    #[test]
    fn one_window_is_a_column() {
        let layout = Layout::Windows(Zeros::LeftOut);
        assert_eq!(sizes(&column(), layout).unwrap(), sizes(&column(), Layout::Whole).unwrap());
    }

    #[test]
    fn published_tables_agree_with_each_other() {
        // Tables 3 and 4 have the percentages of table 2.
        let [plwah, compax, masc] = PUBLISHED[0].map(|bits| bits as f64);
        assert!((percent(masc, plwah) + 16.19).abs() < 0.01);
        assert!((percent(masc, compax) + 11.00).abs() < 0.01);
        assert!(PUBLISHED.iter().flatten().all(|bits| bits % 32 == 0));
    }
}
