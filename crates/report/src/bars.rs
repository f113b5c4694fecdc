//! A plot of bars, as SVG.

use crate::scale::{HEAD, shown, step, text};

/// A plot of horizontal bars, one below the other.
#[derive(Debug, Clone)]
pub struct Bars {
    /// What it shows.
    pub title: String,
    /// What the bars count.
    pub unit: String,
    /// What the marks stand for, such as a limit or a published figure.
    pub mark: Option<String>,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// A bar, and a mark across it.
#[derive(Debug, Clone)]
pub struct Bar {
    /// What it is.
    pub label: String,
    /// How long it is.
    pub value: f64,
    /// Where the mark is.
    pub mark: Option<f64>,
}

const WIDTH: f64 = 720.0;
/// The least and the most room for labels, and the room for one letter.
const LEFT: (f64, f64) = (150.0, 330.0);
const LETTER: f64 = 6.5;
const RIGHT: f64 = 80.0;
const TOP: f64 = 56.0;
const STEP: f64 = 26.0;
const BAR: f64 = 16.0;
impl Bars {
    /// The plot.
    pub fn svg(&self) -> String {
        let values = self.bars.iter().flat_map(|bar| [Some(bar.value), bar.mark]).flatten();
        let most = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        let step = step(most);
        let end = if step > 0.0 { (most / step).ceil() * step } else { 1.0 };
        let left = self.left();
        let at = |value: f64| match value.is_finite() {
            true => left + value.clamp(0.0, end) / end * (WIDTH - left - RIGHT),
            false => left,
        };
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
            let (middle, width) = (y + BAR - 4.0, at(bar.value) - left);
            svg.push_str(&text((left - 8.0, middle), "end", "12px sans-serif", &bar.label));
            svg.push_str(&format!(
                "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" \
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
            // After the mark if the text would overlap it.
            let end = at(bar.value) + 6.0;
            let x = mark.filter(|x| (end - 8.0..end + 40.0).contains(x)).map_or(end, |x| x + 6.0);
            svg.push_str(&text((x, middle), "start", "11px sans-serif", &shown(bar.value)));
            y += STEP;
        }
        let mark = self.mark.as_ref().map_or(String::new(), |mark| format!("; red: {mark}"));
        let legend = format!("{}{mark}", self.unit);
        svg.push_str(&text((10.0, bottom + 32.0), "start", "11px sans-serif", &legend));
        svg.push_str("</svg>\n");
        svg
    }

    /// Where bars start: after the longest label.
    fn left(&self) -> f64 {
        let letters = |bar: &Bar| bar.label.chars().map(|_| LETTER).sum::<f64>();
        let longest = self.bars.iter().map(letters).fold(0.0, f64::max);
        (longest + 16.0).clamp(LEFT.0, LEFT.1)
    }
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
        // The scale ends at 30: at least the greatest value, and a multiple of 5.
        let left = LEFT.0;
        let all = WIDTH - left - RIGHT;
        assert!((widths[0] - all / 3.0).abs() < 0.1 && widths[2] == 0.0, "{widths:?}");
        assert!((widths[0] - 2.0 * widths[1]).abs() < 0.2, "{widths:?}");
        assert!((marks[0] - left - 2.0 * widths[0]).abs() < 0.2, "{marks:?}");
        assert!((marks[1] - left - all).abs() < 0.1, "{marks:?}");
        assert!(svg.contains("t &amp; u") && svg.contains("a&lt;b"));
        assert!(svg.contains("G records/s; red: bus limit"));
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn long_labels_have_room() {
        let mut long = bars(&[(1.0, None), (2.0, None)]);
        long.bars[1].label = "x".repeat(40);
        let left = long.left();
        assert!((left - (40.0 * LETTER + 16.0)).abs() < 0.01, "{left}");
        assert!(long.svg().contains(&format!("<rect x=\"{left:.1}\"")));
        long.bars[0].label = "x".repeat(400);
        assert!((long.left() - LEFT.1).abs() < 0.01);
    }

    #[test]
    fn nothing_and_nonsense_are_drawn_too() {
        let nonsense = [(f64::NAN, Some(f64::INFINITY)), (1.0, None), (f64::INFINITY, None)];
        for values in [&[][..], &[(0.0, None)], &nonsense] {
            let svg = bars(values).svg();
            assert!(svg.len() < 4_000 && svg.ends_with("</svg>\n"), "{svg}");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
