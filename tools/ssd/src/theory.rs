//! What others proved about greedy collection: the yardstick of this model.

/// Media pages programmed per host page, for uniformly random overwrites of single pages.
///
/// `over_provisioning` is spare space by live space: 0.07 for 7 %. With a = 1 + that, it is
/// a / (a + W0(-a e^-a)), W0 Lambert's function (Xiang and Kurkoski, arXiv 1110.4245).
pub fn write_amplification(over_provisioning: f64) -> f64 {
    let a = 1.0 + over_provisioning.max(1e-6);
    a / (a + lambert_w0(-a * (-a).exp()))
}

/// Trimmed space counts as spare: of the logical space only `live` (0 to 1) holds data
/// (Frankie, Hughes and Kreutz-Delgado, arXiv 1210.5975).
pub fn with_trim(over_provisioning: f64, live: f64) -> f64 {
    (1.0 + over_provisioning) / live.max(1e-6) - 1.0
}

/// The w in (-1, 0) with w e^w = x, for -1/e < x < 0, by halving.
fn lambert_w0(x: f64) -> f64 {
    let (mut low, mut high) = (-1.0_f64, 0.0_f64);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if middle * middle.exp() < x {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closed_form_gives_the_papers_figure() {
        assert!((write_amplification(0.3) - 2.36).abs() < 0.01);
        assert!((write_amplification(0.07) - 7.82).abs() < 0.02);
        assert!((write_amplification(with_trim(0.07, 0.8)) - 2.18).abs() < 0.01);
    }
}
