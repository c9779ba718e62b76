//! Tests figures of made-up runs: their contents, that no two texts overlap, and that the bytes of the figures do not
//! change.
//!
//! `FORETOKEN_FIGURES=DIR cargo test -p foretoken-report` writes the figures to DIR, so that a person can look at them.

use super::*;
use crate::fixtures::report;

/// The reports that the tests draw, as (name, report).
fn samples() -> Vec<(&'static str, Report)> {
    vec![
        ("one", report(1, &[], &[], 1, 200)),
        ("three", report(3, &[], &[], 3, 600)),
        ("thirteen", report(13, &[], &[], 3, 600)),
        ("rates", report(13, &[0.25, 0.5, 1.0, 2.0, 3.0], &[], 3, 400)),
        ("two-sweeps", report(3, &[0.5, 1.0, 2.0], &["v1", "v0-prefill-first"], 2, 300)),
        ("whole", whole()),
    ]
}

/// Thirteen policies at three rates with all data that a report can have: an oracle, confidences, preemptions and
/// changes against other results.
fn whole() -> Report {
    let mut report = report(13, &[0.5, 1.0, 2.0], &[], 3, 300);
    crate::relate(&mut report.cells);
    for (i, cell) in report.cells.iter_mut().enumerate() {
        cell.summary.preemptions = (i % 7) as u64;
        cell.change = Some((i % 11) as f64 * 0.02 - 0.08);
    }
    report
}

/// A text of an SVG document with its estimated box: top left and bottom right corner, px.
pub(super) struct Placed {
    pub text: String,
    pub from: (f64, f64),
    pub to: (f64, f64),
}

/// The value of an attribute of a tag; empty if the tag does not have the attribute.
fn attribute<'t>(tag: &'t str, name: &str) -> &'t str {
    tag.split(&format!(" {name}=\"")).nth(1).map_or("", |rest| rest.split('"').next().unwrap())
}

/// Every text of a figure. The SVG group of a text gives the text's size and anchor.
pub(super) fn texts(svg: &str) -> Vec<Placed> {
    let mut all = Vec::new();
    for group in svg.split("<g fill=").skip(1) {
        let tag = format!(" fill={}", group.split('>').next().unwrap());
        let size: f64 = attribute(&tag, "font-size").parse().unwrap();
        let group = group.split("</g>").next().unwrap();
        for element in group.split("<text").skip(1) {
            let (place, rest) = element.split_once('>').unwrap();
            let text = rest.split("</text").next().unwrap().replace("&amp;", "&").replace("&quot;", "\"");
            let (x, y): (f64, f64) = (attribute(place, "x").parse().unwrap(), attribute(place, "y").parse().unwrap());
            let (width, half) = (style::text_width(&text, size), size * 0.5);
            let start = match attribute(&tag, "text-anchor") {
                "" => 0.0,
                "middle" => width / 2.0,
                _ => width,
            };
            all.push(if place.contains("rotate(-90") {
                let x = x - 0.35 * size;
                Placed { text, from: (x - half, y - width / 2.0), to: (x + half, y + width / 2.0) }
            } else {
                let y = y - 0.35 * size;
                Placed { text, from: (x - start, y - half), to: (x - start + width, y + half) }
            });
        }
    }
    all
}

#[test]
fn figures_are_written_to_the_folder_of_the_variable() {
    let Some(folder) = std::env::var_os("FORETOKEN_FIGURES") else { return };
    for (name, report) in samples() {
        let folder = Path::new(&folder).join(name);
        std::fs::create_dir_all(folder.join("column")).unwrap();
        write_figures(&folder, &figures(&report)).unwrap();
        for figure in column_figures(&report) {
            std::fs::write(folder.join("column").join(figure.file), figure.svg).unwrap();
        }
    }
}

#[test]
fn no_two_texts_overlap_and_none_leaves_the_page() {
    for (name, report) in samples() {
        let all = figures(&report).into_iter().chain(column_figures(&report));
        for (file, svg) in
            all.flat_map(|f| [Some(f.svg), f.narrow].into_iter().flatten().map(move |s| (f.file.clone(), s)))
        {
            let size = svg.split("viewBox=\"0 0 ").nth(1).unwrap().split('"').next().unwrap();
            let (width, height) = size.split_once(' ').map(|(w, h)| (w.parse().unwrap(), h.parse().unwrap())).unwrap();
            let texts = texts(&svg);
            assert!(texts.len() > 5, "{name}/{file}: {} texts", texts.len());
            for (i, a) in texts.iter().enumerate() {
                let inside: bool = a.from.0 >= 0.0 && a.from.1 >= 0.0 && a.to.0 <= width && a.to.1 <= height;
                assert!(!a.text.ends_with('…') || a.text.len() > 30, "{name}/{file}: '{}' is cut", a.text);
                assert!(inside, "{name}/{file}: '{}' leaves the page: {:?} {:?}", a.text, a.from, a.to);
                for b in &texts[i + 1..] {
                    let apart = a.to.0 <= b.from.0 || b.to.0 <= a.from.0 || a.to.1 <= b.from.1 || b.to.1 <= a.from.1;
                    assert!(apart, "{name}/{file}: '{}' and '{}' overlap", a.text, b.text);
                }
            }
        }
    }
}

#[test]
fn every_figure_names_its_policies_and_its_source() {
    for (name, report) in samples() {
        let policies: Vec<&str> = View::new(&report).policies.iter().map(|p| p.0).collect();
        for Figure { file, svg, kind, .. } in figures(&report) {
            let texts = texts(&svg);
            let has = |what: &str| texts.iter().any(|t| t.text == what);
            // A policy that drafts nothing has no line in figures of draft tokens, and a policy that does not look at
            // confidences has none in figures of confidences. The map of goodput pools all policies and shows no
            // policy's name.
            let absent = |p: &str| match kind {
                Kind::DraftLength | Kind::Chosen | Kind::Depth => p == "autoregressive",
                Kind::Calibration => !report.cells.iter().any(|c| c.key().policy == p && !c.calibration.is_empty()),
                Kind::Heat => true,
                _ => false,
            };
            let missing: Vec<_> = policies.iter().filter(|p| !has(p) && !absent(p)).collect();
            assert!(missing.is_empty(), "{name}/{file}: {missing:?}");
            assert!(texts.iter().any(|t| t.text.starts_with("simulated · ")), "{name}/{file}");
        }
    }
}

#[test]
fn the_list_follows_what_was_swept() {
    let files = |report: &Report| figures(report).into_iter().map(|f| f.file).collect::<Vec<_>>();
    let plain = [
        "speedup.svg", "slo-attainment.svg", "batch-size.svg", "draft-length.svg", "e2e-latency.svg", "ttft.svg",
        "tpot.svg", "length-by-batch-size.svg", "acceptance-by-depth.svg", "goodput-map.svg", "kv-use.svg",
    ];
    assert_eq!(files(&report(3, &[], &[], 1, 300)), plain);
    // The only policy does not draft, so there are no draft lengths to show.
    assert_eq!(files(&report(1, &[], &[], 1, 300)), [&plain[..3], &plain[4..7], &plain[10..]].concat());
    // Of these thirteen policies, some look at confidences, and one is an oracle, which sees which draft tokens will be
    // accepted.
    let mut all = report(13, &[], &[], 1, 300);
    crate::relate(&mut all.cells);
    assert!(["calibration.svg", "regret.svg", "behind.svg"].iter().all(|f| files(&all).contains(&(*f).to_owned())));
    // A swept number gets figures with this number as the axis. Load over time gets a figure for each combination.
    assert_eq!(
        files(&report(2, &[1.0, 2.0], &["v1"], 1, 300)),
        [
            "speedup.svg", "speedup.workload.rate-scale.svg", "slo-attainment.svg",
            "slo-attainment.workload.rate-scale.svg", "mean-latency.workload.rate-scale.svg",
            "tradeoff.workload.rate-scale.svg", "batch-size.rate-scale-1_scheduler-v1.svg",
            "batch-size.rate-scale-2_scheduler-v1.svg", "draft-length.rate-scale-1_scheduler-v1.svg",
            "draft-length.rate-scale-2_scheduler-v1.svg", "e2e-latency.svg", "ttft.svg", "tpot.svg",
            "length-by-batch-size.svg", "acceptance-by-depth.svg", "goodput-map.svg", "kv-use.svg"
        ]
    );
    // These swept values differ only in characters that file names replace.
    let odd = files(&report(2, &[], &["a b", "a:b"], 1, 300));
    assert!(odd.contains(&"batch-size.scheduler-a-b.svg".to_owned()), "{odd:?}");
    assert!(odd.contains(&"batch-size.scheduler-a-b.2.svg".to_owned()), "{odd:?}");
}

#[test]
fn cells_with_nothing_to_show_draw_nothing_and_implied_ones_are_left_out() {
    let mut report = report(2, &[], &[], 2, 40);
    report.cells.iter_mut().filter(|c| c.key().policy == "autoregressive").for_each(|c| c.entry.implied = true);
    for Figure { file, svg, .. } in figures(&report) {
        assert!(!texts(&svg).iter().any(|t| t.text == "autoregressive"), "{file}");
    }
    report.cells.iter_mut().for_each(|c| c.speedup = Some(f64::INFINITY));
    assert!(!figures(&report).iter().any(|f| f.file.starts_with("speedup")));
    report.cells.clear();
    assert_eq!(figures(&report), []);
}

#[test]
fn numbers_are_written_beside_their_dots() {
    let report = report(2, &[], &[], 1, 40);
    let svg = &figures(&report)[0].svg;
    for cell in &report.cells {
        let said = format!("{:.2}", cell.speedup.unwrap());
        assert!(texts(svg).iter().any(|t| t.text == said), "{said}");
    }
}

/// The first tag of the SVG group that contains a policy's shapes.
fn group<'s>(svg: &'s str, policy: &str) -> &'s str {
    let at = svg.find(&format!("<g data-p=\"{policy}\"")).unwrap_or_else(|| panic!("no group of {policy}"));
    svg[at..].split('>').next().unwrap()
}

#[test]
fn the_fastest_plain_decoding_and_the_bound_are_in_colour_and_the_others_have_theirs_at_hand() {
    let all = figures(&whole());
    for name in ["speedup.workload.rate-scale.svg", "behind.svg", "tpot.svg", "tradeoff.workload.rate-scale.svg"] {
        let svg = &all.iter().find(|f| f.file == name).unwrap().svg;
        assert_eq!(group(svg, "adaspec"), "<g data-p=\"adaspec\" color=\"#D55E00\"", "{name}");
        for policy in ["autoregressive", "oracle-goodput"] {
            assert!(!group(svg, policy).contains("data-c"), "{name}: {policy} is in its own colour");
        }
        let quiet = group(svg, "threshold-hf");
        assert!(quiet.contains(&format!("color=\"{}\" data-c=\"#882255\"", hex(QUIET))), "{name}: {quiet}");
    }
    let few = figures(&report(3, &[], &[], 2, 60));
    assert!(few.iter().all(|f| !f.svg.contains("data-c")), "of three policies all are in colour");
}

#[test]
fn with_many_policies_lines_of_the_few_in_colour_carry_their_names() {
    let mut report = whole();
    let mut more: Vec<Cell> = report.cells.iter().filter(|c| c.entry.role == crate::Role::Contender).cloned().collect();
    for cell in &mut more {
        cell.entry.key.policy += "-again";
        cell.summary.e2e = cell.summary.e2e.map(|q| foretoken_sim::metrics::Quantiles { mean: 1.1 * q.mean, ..q });
    }
    report.cells.extend(more);
    crate::relate(&mut report.cells);
    let all = figures(&report);
    let svg = &all.iter().find(|f| f.file == "speedup.workload.rate-scale.svg").unwrap().svg;
    let texts = texts(svg);
    let has = |what: &str| texts.iter().any(|t| t.text == what);
    assert!(["adaspec", "autoregressive", "oracle-goodput"].iter().all(|name| has(name)));
    assert!(!has("threshold-hf") && !has("random-again"), "no legend");
    for (i, a) in texts.iter().enumerate() {
        assert!(a.to.0 <= style::WIDTH, "'{}' leaves the page", a.text);
        for b in &texts[i + 1..] {
            let apart = a.to.0 <= b.from.0 || b.to.0 <= a.from.0 || a.to.1 <= b.from.1 || b.to.1 <= a.from.1;
            assert!(apart, "'{}' and '{}' overlap", a.text, b.text);
        }
    }
    let tpot = &all.iter().find(|f| f.file == "tpot.svg").unwrap().svg;
    assert!(tpot.contains(" others</text>"), "the legend counts the rest");
}

#[test]
fn rows_are_sorted_and_intervals_beyond_the_frame_get_an_arrowhead() {
    let mut report = report(8, &[], &[], 3, 60);
    crate::relate(&mut report.cells);
    let position = |svg: &str, policy: &str| svg.find(&format!("<g data-p=\"{policy}\"")).unwrap();
    let behind = |report: &Report| figures(report).into_iter().find(|f| f.file == "behind.svg").unwrap().svg;
    let svg = behind(&report);
    assert!(position(&svg, "adaspec") < position(&svg, "smartspec"));
    assert!(position(&svg, "smartspec") < position(&svg, "autoregressive"));
    // One policy is twenty times slower than the others. Its row has an arrowhead and a number, and the scale fits the
    // other policies.
    let arrows = |svg: &str| svg.matches("stroke-width=\"2\" d=\"M").count();
    let before = arrows(&svg);
    report.cells.iter_mut().filter(|c| c.key().policy == "fixed-5").for_each(|c| c.behind = Some(20.0));
    let svg = behind(&report);
    assert!(arrows(&svg) > before || svg.contains(">2000<"), "{svg}");
    assert!(texts(&svg).iter().any(|t| t.text.starts_with("2000")), "{svg}");
}

fn digest(f: &Figure) -> String {
    format!("{} {}", &blake3::hash(f.svg.as_bytes()).to_hex()[..16], f.file)
}

/// Digests of the figures that only the sample report `whole` has and the sample report `three` lacks, and of the
/// figure of KV use.
#[test]
fn bytes_of_the_other_kinds_stay() {
    let figures = figures(&whole());
    let others = figures.iter().filter(|f| {
        matches!(f.kind, Kind::Regret | Kind::Change | Kind::Calibration | Kind::Memory)
            || f.file.contains("rate-scale.svg")
    });
    assert_eq!(
        others.map(digest).collect::<Vec<_>>(),
        [
            "8a4753817c237ee6 behind.workload.rate-scale.svg", "a876d880d7483d02 speedup.workload.rate-scale.svg",
            "6480e5dafc19e361 slo-attainment.workload.rate-scale.svg", "2ea06c2a87833c5e regret.svg",
            "c8050f3d11a04604 regret.workload.rate-scale.svg", "fded65b3e02233bc change.svg",
            "156634dbca6928b1 change.workload.rate-scale.svg", "a6918eb7f603c921 mean-latency.workload.rate-scale.svg",
            "eff990dfd660a793 tradeoff.workload.rate-scale.svg", "be0a1a78734513eb calibration.svg",
            "296386d9d6bbaa4e kv-use.svg", "c6a073dc2a82d124 preemptions.svg",
        ]
    );
}

/// Compares the figure of speedups byte for byte, and the other figures by digest. After an intended change: look at
/// the figures (`FORETOKEN_FIGURES`), then copy `three/speedup.svg` over the golden file, and the digests from the
/// test's failure message.
#[test]
fn bytes_stay() {
    let figures = figures(&samples().swap_remove(1).1);
    assert!(figures[0].svg == include_str!("golden/speedup.svg"), "speedup.svg of `three` changed");
    assert_eq!(
        figures[1..].iter().map(digest).collect::<Vec<_>>(),
        [
            "1cb538270c7b585b slo-attainment.svg", "39ca4a14f9565b34 batch-size.svg",
            "9f5d1b77df28c110 draft-length.svg", "4431d9a09b340edd e2e-latency.svg", "aff7dc63ed9b679b ttft.svg",
            "9e7e7324e745a017 tpot.svg", "ea4e9c95315f06e1 length-by-batch-size.svg",
            "e10070eb3812343c acceptance-by-depth.svg", "e4e1ed500a45de93 goodput-map.svg",
            "085a747ef9f2abd7 kv-use.svg"
        ]
    );
}
