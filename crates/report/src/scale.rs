//! Shared by all plots: round steps of a scale, short numbers, text.

/// The approximate number of lines of a scale.
const LINES: f64 = 6.0;

/// The default font.
pub(crate) const HEAD: &str = "font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\"";

/// The distance between two lines of the scale: 1, 2 or 5 times a power of ten.
pub(crate) fn step(most: f64) -> f64 {
    if most <= 0.0 {
        return 0.0;
    }
    let rough = most / LINES;
    let power = 10_f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|&step| step >= rough * 0.999).unwrap_or(rough)
}

/// A number with three significant digits.
pub(crate) fn shown(value: f64) -> String {
    let text = match value.abs() {
        least if !least.is_finite() => return "-".to_owned(),
        least if least >= 1e9 => return format!("{}G", shown(value / 1e9)),
        least if least >= 1e6 => return format!("{}M", shown(value / 1e6)),
        least if least >= 1e4 => return format!("{}k", shown(value / 1e3)),
        least if least >= 100.0 => format!("{value:.0}"),
        least if least >= 10.0 => format!("{value:.1}"),
        least if least >= 0.1 || least == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Words at a place.
pub(crate) fn text((x, y): (f64, f64), anchor: &str, font: &str, content: &str) -> String {
    let content = content.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" style=\"font: {font}\">\
         {content}</text>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_have_round_steps() {
        for (most, expected) in [(30.0, 5.0), (31.0, 10.0), (6.0, 1.0), (0.9, 0.2), (120.0, 20.0)] {
            assert!((step(most) - expected).abs() < 1e-9, "{most}: {}", step(most));
        }
        assert_eq!([0.0, 5.0, 12.34, 123.4, 0.5].map(shown), ["0", "5", "12.3", "123", "0.5"]);
        assert_eq!([2e4, 13.5e6, 0.012, 9_000.0].map(shown), ["20k", "13.5M", "0.012", "9000"]);
        assert_eq!([f64::INFINITY, f64::NAN].map(shown), ["-", "-"]);
    }
}
