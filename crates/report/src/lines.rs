//! A plot of lines or points, as SVG.

use crate::scale::{HEAD, shown, step, text};

/// A plot of values over others.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    /// What it shows.
    pub title: String,
    /// What goes to the right.
    pub x: String,
    /// What goes up.
    pub y: String,
    /// Whether each step to the right is ten times the one before.
    pub log_x: bool,
    /// Whether each step up is ten times the one before.
    pub log_y: bool,
    /// The lines.
    pub lines: Vec<Line>,
}

/// A line through points, in the order they are given.
#[derive(Debug, Clone)]
pub struct Line {
    /// What it is.
    pub label: String,
    /// Whether only the points are drawn, without a line.
    pub points_only: bool,
    /// Where it goes: to the right and up.
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 52.0;
const COLOURS: [&str; 10] = [
    "#3b6ea5", "#c0392b", "#2e8b57", "#8e44ad", "#d68910", "#16a085", "#7f8c8d", "#e67fb1",
    "#5d4037", "#000000",
];

/// A scale from its first line to its last.
struct Axis {
    log: bool,
    from: f64,
    to: f64,
    lines: Vec<f64>,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64>, log: bool) -> Self {
        let values = values.filter(|value| value.is_finite() && (!log || *value > 0.0));
        let (least, most) = values
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), value| (a.min(value), b.max(value)));
        if least > most {
            return Self { log: false, from: 0.0, to: 1.0, lines: vec![0.0, 1.0] };
        }
        if log {
            let (from, to) = (least.log10().floor(), most.log10().ceil().max(least.log10() + 0.1));
            let mut lines = vec![from];
            while lines.last().is_some_and(|last| last + 0.999 < to) {
                lines.push(lines.last().map_or(to, |last| last + 1.0));
            }
            let lines = lines.into_iter().map(|power| 10_f64.powf(power)).collect();
            return Self { log, from, to, lines };
        }
        // Both ways from zero, which is always shown.
        let step = step(most.max(-least).max(f64::MIN_POSITIVE));
        let (from, to) = ((least.min(0.0) / step).floor(), (most.max(0.0) / step).ceil());
        let to = to.max(from + 1.0);
        let mut lines = vec![];
        let mut line = from;
        while line <= to + 0.5 {
            lines.push(line * step);
            line += 1.0;
        }
        Self { log, from: from * step, to: to * step, lines }
    }

    /// From 0 to 1, as far as the value is from the first line to the last.
    fn part(&self, value: f64) -> Option<f64> {
        let value = if self.log { value.log10() } else { value };
        let part = (value - self.from) / (self.to - self.from);
        part.is_finite().then(|| part.clamp(0.0, 1.0))
    }
}

impl Lines {
    /// The plot.
    pub fn svg(&self) -> String {
        let all = || self.lines.iter().flat_map(|line| &line.points);
        let (right, up) =
            (Axis::new(all().map(|p| p.0), self.log_x), Axis::new(all().map(|p| p.1), self.log_y));
        let (width, height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
        let at_x = |value: f64| right.part(value).map(|part| LEFT + part * width);
        let at_y = |value: f64| up.part(value).map(|part| TOP + (1.0 - part) * height);
        let (end_x, end_y, small) = (LEFT + width, TOP + height, "11px sans-serif");
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" {HEAD}>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        );
        svg.push_str(&text((10.0, 22.0), "start", "bold 14px sans-serif", &self.title));
        for &line in &right.lines {
            let Some(x) = at_x(line) else { continue };
            svg.push_str(&format!("<path d=\"M{x:.1} {TOP}V{end_y:.1}\" stroke=\"#ddd\"/>\n"));
            svg.push_str(&text((x, end_y + 16.0), "middle", small, &shown(line)));
        }
        for &line in &up.lines {
            let Some(y) = at_y(line) else { continue };
            svg.push_str(&format!("<path d=\"M{LEFT} {y:.1}H{end_x:.1}\" stroke=\"#ddd\"/>\n"));
            svg.push_str(&text((LEFT - 6.0, y + 4.0), "end", small, &shown(line)));
        }
        let under = format!("right: {}; up: {}", self.x, self.y);
        svg.push_str(&text((LEFT, HEIGHT - 12.0), "start", small, &under));
        let mut y = TOP + 8.0;
        for (line, colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
            let points = line.points.iter().filter_map(|&(x, y)| at_x(x).zip(at_y(y)));
            let points: Vec<(f64, f64)> = points.collect();
            if !line.points_only {
                let path: Vec<String> =
                    points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
                svg.push_str(&format!(
                    "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" \
                     stroke-width=\"2\"/>\n",
                    path.join(" ")
                ));
            }
            for (x, y) in &points {
                svg.push_str(&format!(
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{colour}\"/>\n"
                ));
            }
            svg.push_str(&format!(
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\n",
                end_x + 12.0,
                y - 9.0
            ));
            svg.push_str(&text((end_x + 26.0, y), "start", small, &line.label));
            y += 18.0;
        }
        svg.push_str("</svg>\n");
        svg
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(log_x: bool, points: &[(f64, f64)]) -> String {
        let line = Line { label: "a<b".to_owned(), points_only: false, points: points.to_vec() };
        let (title, x, y) = ("t & u".to_owned(), "rows".to_owned(), "ms".to_owned());
        Lines { title, x, y, log_x, log_y: false, lines: vec![line] }.svg()
    }

    fn places(svg: &str) -> Vec<(f64, f64)> {
        let points = svg.split("polyline points=\"").nth(1).unwrap().split('"').next().unwrap();
        let pair = |point: &str| {
            let (x, y) = point.split_once(',').unwrap();
            (x.parse().unwrap(), y.parse().unwrap())
        };
        points.split(' ').map(pair).collect()
    }

    #[test]
    fn points_stand_where_their_values_say() {
        let svg = plot(false, &[(0.0, 0.0), (30.0, 60.0), (60.0, 30.0)]);
        let (middle, end) = (LEFT + (WIDTH - LEFT - RIGHT) / 2.0, WIDTH - RIGHT);
        let (bottom, half) = (HEIGHT - BOTTOM, TOP + (HEIGHT - TOP - BOTTOM) / 2.0);
        assert_eq!(places(&svg), [(LEFT, bottom), (middle, TOP), (end, half)]);
        assert!(svg.contains("t &amp; u") && svg.contains("a&lt;b"));
        assert!(svg.contains("right: rows; up: ms") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn steps_of_ten_are_as_wide_as_each_other() {
        let places = places(&plot(true, &[(1.0, 1.0), (10.0, 1.0), (100.0, 1.0), (0.0, 1.0)]));
        // Zero has no place on such a scale.
        assert_eq!(places.len(), 3);
        let wide = |at: usize| places[at + 1].0 - places[at].0;
        assert!((wide(0) - wide(1)).abs() < 0.2, "{places:?}");
    }

    #[test]
    fn values_below_zero_are_under_its_line() {
        let places = places(&plot(false, &[(0.0, -10.0), (1.0, 0.0), (2.0, 10.0)]));
        assert!(places[0].1 > places[1].1 && places[1].1 > places[2].1, "{places:?}");
    }

    #[test]
    fn nothing_and_nonsense_are_drawn_too() {
        for points in [&[][..], &[(0.0, 0.0)], &[(f64::NAN, 1.0), (f64::INFINITY, -1.0)]] {
            for log in [false, true] {
                let svg = plot(log, points);
                assert!(svg.len() < 6_000 && svg.ends_with("</svg>\n"), "{svg}");
            }
        }
    }
}
