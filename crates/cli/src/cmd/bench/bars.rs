//! A plot of bars, as SVG.

/// A plot of horizontal bars, one below the other.
#[derive(Debug, Clone)]
pub(super) struct Bars {
    /// What it shows.
    pub(super) title: String,
    /// What the bars count.
    pub(super) unit: String,
    /// What the marks stand for, such as a limit or a published figure.
    pub(super) mark: Option<String>,
    /// The bars.
    pub(super) bars: Vec<Bar>,
}

/// A bar, and a mark across it.
#[derive(Debug, Clone)]
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) value: f64,
    pub(super) mark: Option<f64>,
}

const WIDTH: f64 = 720.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 80.0;
const TOP: f64 = 56.0;
const STEP: f64 = 26.0;
const BAR: f64 = 16.0;
/// Lines of the scale, about.
const LINES: f64 = 6.0;

const HEAD: &str = "font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\"";

impl Bars {
    /// The plot.
    pub(super) fn svg(&self) -> String {
        let values = self.bars.iter().flat_map(|bar| [Some(bar.value), bar.mark]).flatten();
        let most = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        let step = step(most);
        let end = if step > 0.0 { (most / step).ceil() * step } else { 1.0 };
        let at = |value: f64| LEFT + value.clamp(0.0, end) / end * (WIDTH - LEFT - RIGHT);
        let rows = self.bars.iter().map(|_| STEP).sum::<f64>();
        let (bottom, height) = (TOP + rows, TOP + rows + 40.0);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" {HEAD}>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        );
        svg.push_str(&text((10.0, 22.0), "start", "bold 14px sans-serif", &self.title));
        let mut line = 0.0;
        while step > 0.0 && line <= end * 1.0001 {
            let x = at(line);
            svg.push_str(&format!(
                "<path d=\"M{x:.1} {:.1}V{bottom:.1}\" stroke=\"#ddd\"/>\n",
                TOP - 6.0
            ));
            svg.push_str(&text((x, bottom + 14.0), "middle", "11px sans-serif", &shown(line)));
            line += step;
        }
        let mut y = TOP;
        for bar in &self.bars {
            let (middle, width) = (y + BAR - 4.0, at(bar.value) - LEFT);
            svg.push_str(&text((LEFT - 8.0, middle), "end", "12px sans-serif", &bar.label));
            svg.push_str(&format!(
                "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" \
                 fill=\"#3b6ea5\"/>\n"
            ));
            let mark = bar.mark.filter(|mark| mark.is_finite()).map(at);
            if let Some(x) = mark {
                svg.push_str(&format!(
                    "<path d=\"M{x:.1} {:.1}v{:.1}\" stroke=\"#c0392b\" stroke-width=\"3\"/>\n",
                    y - 3.0,
                    BAR + 6.0
                ));
            }
            // Behind the mark where that would be written over.
            let end = at(bar.value) + 6.0;
            let x = mark.filter(|x| (end - 8.0..end + 40.0).contains(x)).map_or(end, |x| x + 6.0);
            svg.push_str(&text((x, middle), "start", "11px sans-serif", &shown(bar.value)));
            y += STEP;
        }
        let mark = self.mark.as_ref().map_or(String::new(), |mark| format!("; red: {mark}"));
        let legend = format!("{}{mark}", self.unit);
        svg.push_str(&text((LEFT, bottom + 32.0), "start", "11px sans-serif", &legend));
        svg.push_str("</svg>\n");
        svg
    }
}

/// The distance between two lines of the scale: 1, 2 or 5 times a power of ten.
fn step(most: f64) -> f64 {
    if most <= 0.0 {
        return 0.0;
    }
    let rough = most / LINES;
    let power = 10_f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|&step| step >= rough * 0.999).unwrap_or(rough)
}

/// Three digits that count.
fn shown(value: f64) -> String {
    let text = match value.abs() {
        least if least >= 100.0 => format!("{value:.0}"),
        least if least >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

fn text((x, y): (f64, f64), anchor: &str, font: &str, content: &str) -> String {
    let content = content.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" style=\"font: {font}\">\
         {content}</text>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(values: &[(f64, Option<f64>)]) -> Bars {
        let bars = values.iter().map(|&(value, mark)| Bar { label: "a<b".to_owned(), value, mark });
        let (title, unit) = ("t & u".to_owned(), "G records/s".to_owned());
        Bars { title, unit, mark: Some("bus limit".to_owned()), bars: bars.collect() }
    }

    /// The width of each bar, and where each mark stands.
    fn drawn(svg: &str) -> (Vec<f64>, Vec<f64>) {
        let between = |line: &str, from: &str, to: &str| -> f64 {
            line.split(from).nth(1).unwrap().split(to).next().unwrap().parse().unwrap()
        };
        let bars = svg.lines().filter(|line| line.contains("#3b6ea5"));
        let marks = svg.lines().filter(|line| line.contains("#c0392b"));
        (
            bars.map(|line| between(line, "width=\"", "\"")).collect(),
            marks.map(|line| between(line, "d=\"M", " ")).collect(),
        )
    }

    #[test]
    fn bars_and_marks_are_as_long_as_their_values() {
        let svg = bars(&[(10.0, Some(20.0)), (5.0, None), (0.0, Some(30.0))]).svg();
        let (widths, marks) = drawn(&svg);
        assert_eq!((widths.len(), marks.len()), (3, 2));
        // The scale ends at 30: most of what there is, and a multiple of 5.
        let all = WIDTH - LEFT - RIGHT;
        assert!((widths[0] - all / 3.0).abs() < 0.1 && widths[2] == 0.0, "{widths:?}");
        assert!((widths[0] - 2.0 * widths[1]).abs() < 0.2, "{widths:?}");
        assert!((marks[0] - LEFT - 2.0 * widths[0]).abs() < 0.2, "{marks:?}");
        assert!((marks[1] - LEFT - all).abs() < 0.1, "{marks:?}");
        assert!(svg.contains("t &amp; u") && svg.contains("a&lt;b"));
        assert!(svg.contains("G records/s; red: bus limit"));
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn nothing_and_nonsense_are_drawn_too() {
        for values in [&[][..], &[(0.0, None)], &[(f64::NAN, Some(f64::INFINITY)), (1.0, None)]] {
            let svg = bars(values).svg();
            assert!(svg.len() < 4_000 && svg.ends_with("</svg>\n"), "{svg}");
        }
    }

    #[test]
    fn scales_have_round_steps() {
        for (most, expected) in [(30.0, 5.0), (31.0, 10.0), (6.0, 1.0), (0.9, 0.2), (120.0, 20.0)] {
            assert!((step(most) - expected).abs() < 1e-9, "{most}: {}", step(most));
        }
        assert_eq!([0.0, 5.0, 12.34, 123.4, 0.5].map(shown), ["0", "5", "12.3", "123", "0.5"]);
    }
}
