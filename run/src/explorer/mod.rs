//! The break-even explorer: one HTML page that computes, in the browser, the time and the expected tokens of a decode
//! step.
//!
//! The page has a copy of the simulator's arithmetic in JavaScript (`model.js`). `tests/cli/explore.rs` runs it in a
//! browser and compares every number with the library's. Presets come from the library, so a new GPU or model appears
//! on the page without a change here.

use foretoken_sim::latency::hardware::GPUS;
use foretoken_sim::latency::models::MODELS;
use foretoken_sim::latency::{LatencySpec, RooflineSpec};
use foretoken_sim::{ContextReads, Drafting};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The name of the page's file.
pub const PAGE: &str = "explore.html";

const TEMPLATE: &str = include_str!("page.html");
const PARTS: [(&str, &str); 4] = [
    ("/*STYLE*/", include_str!("style.css")),
    ("/*MODEL*/", include_str!("model.js")),
    ("/*CHARTS*/", include_str!("charts.js")),
    ("/*APP*/", include_str!("app.js")),
];

/// A machine that is added to the presets: from a profile, or the hardware of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The machine's name on the page.
    pub name: String,
    /// Time of a target pass.
    pub target: LatencySpec,
    /// Time of a draft pass.
    pub draft: LatencySpec,
    /// How a verify pass reads context.
    pub context_reads: ContextReads,
    /// Does the draft run one pass per token, or one for all?
    pub drafting: Drafting,
    /// Host time of a step outside its passes, seconds.
    pub step_overhead_s: f64,
    /// Were its costs measured?
    pub measured: bool,
    /// A note on the machine: where it was measured, and how far to trust it.
    pub note: String,
}

/// The page, with everything inline. If `machine` is given, the page opens with it.
pub fn page(machine: Option<&Machine>) -> String {
    // A `<` in a name could end the script element around it.
    let presets = presets(machine).to_string().replace('<', "\\u003c");
    let page = PARTS.iter().fold(TEMPLATE.to_owned(), |page, (mark, part)| page.replacen(mark, part.trim_end(), 1));
    page.replacen("/*PRESETS*/", &presets, 1)
}

/// The page's presets as JSON: GPUs' datasheets, models' shapes, and a roofline's defaults.
fn presets(machine: Option<&Machine>) -> Value {
    let gpus = GPUS.iter().map(|g| {
        let gpu = json!({
            "peak_flops": g.peak_flops, "bandwidth": g.bandwidth, "memory": g.memory, "link": g.link, "source": g.source,
        });
        (g.name.to_owned(), gpu)
    });
    let models = MODELS.iter().map(|m| {
        let model = json!({
            "layers": m.layers, "hidden": m.hidden, "heads": m.heads, "kv_heads": m.kv_heads, "head_dim": m.head_dim,
            "intermediate": m.intermediate, "vocab": m.vocab, "tied": m.tied, "experts": m.experts,
        });
        (m.name.to_owned(), model)
    });
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "gpus": gpus.collect::<Map<_, _>>(),
        "models": models.collect::<Map<_, _>>(),
        "roofline": defaults(),
        "profile": machine,
    })
}

/// The default settings of a roofline.
fn defaults() -> RooflineSpec {
    let named = json!({ "gpu": GPUS[0].name, "model": MODELS[0].name });
    serde_json::from_value(named).expect("every other setting has a default")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_fetches_nothing() {
        let page = page(None);
        for (mark, _) in PARTS {
            assert!(!page.contains(mark), "{mark} is left");
        }
        assert!(!page.contains("/*PRESETS*/"));
        for outside in ["http:", "https:", "src=", "@import", "url("] {
            let found = page.replace("http://www.w3.org/2000/svg", "").contains(outside);
            assert!(!found, "the page refers to something outside: {outside}");
        }
    }

    #[test]
    fn a_name_cannot_end_the_script() {
        let linear = LatencySpec::Linear(foretoken_sim::Coefficients::FREE);
        let machine = Machine {
            name: "</script><b>".into(),
            target: linear.clone(),
            draft: linear,
            context_reads: ContextReads::Once,
            drafting: Drafting::Autoregressive,
            step_overhead_s: 0.0,
            measured: false,
            note: String::new(),
        };
        assert!(!page(Some(&machine)).contains("</script><b>"));
    }
}
