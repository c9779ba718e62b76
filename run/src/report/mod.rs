//! Makes the HTML page of a results folder: reads the folder, pairs its runs with the runs of another folder if there
//! is one, and writes the page.

mod claims;
mod explorer;
mod overview;
mod pairing;
mod paper;
mod portable;
mod results;

pub use overview::overview;
pub use paper::paper;
pub use portable::Portable;
pub use results::Results;

use crate::cells::{Assembled, Folder, make_folder, write_problem};
use crate::explorer::PAGE;
use crate::spec::problem::{Problem, Result};
use foretoken_report::{Report, RunFacts, Source, Staged, TIMING, run_page};
use std::path::{Path, PathBuf};

/// Name of the file of a results folder's HTML page. The file is written last, so if it exists, the other files of the
/// page exist too.
pub const INDEX: &str = "index.html";
/// A line that all pages of Foretoken contain. A page without this line is never overwritten.
const MARK: &str = "<meta name=\"generator\" content=\"Foretoken\">";

/// Makes the page of the results folder `folder` in its subfolder `report`. Returns the page's path.
pub fn make_in(folder: &Path) -> Result<PathBuf> {
    let results = Results::open(folder)?;
    let to = Folder::at(folder.to_path_buf()).report();
    Ok(write(results, None, &to)?.page)
}

/// Makes the page of the results folder `folder` from the results that were just written into it, without reading the
/// tables back. Returns the page's path; `None` if no figures were asked for. Takes the drawn figures out of `made`.
pub fn make_of(folder: &Path, made: &mut Assembled) -> Result<Option<PathBuf>> {
    let Some(drawn) = made.drawn.take() else { return Ok(None) };
    let results = Results::just_made(folder, &made.comparison, drawn)?;
    let to = Folder::at(folder.to_path_buf()).report();
    Ok(Some(write(results, None, &to)?.page))
}

/// An HTML page of results that was written.
pub struct Written {
    pub page: PathBuf,
    /// A paragraph on how the results differ from the other results folder with which the page compares them; `None`
    /// without another folder.
    pub changes: Option<String>,
}

/// Writes the HTML page of `results` into the folder `to`, together with the file of the run's timing and the
/// explorer's page. `baseline` are the results of another folder with which the page compares.
pub fn write(mut results: Results, baseline: Option<Results>, to: &Path) -> Result<Written> {
    let mut compared = baseline.map(|other| pairing::compare(&results, other)).transpose()?;
    let timing = results.timing();
    let (explorer_page, explorer) = explorer::of(&results.plan, &results.cells).unzip();
    if results.source == Source::Observed {
        // An observed run ends after `observe.run_s`, so fewer requests are sent than the experiment has. The figures
        // say how many were answered.
        results.plan.variants.iter_mut().for_each(|variant| variant.experiment.workload.requests = None);
    }
    let scope = crate::scope::of(&results.plan);
    let folder = results.folder.display().to_string();
    let portable = Portable::of(results.manifest.inputs.keys().cloned().chain([folder]), &results.config);
    let (first, claims) = (claims::headline(&results), claims::section(&results));
    let Results { manifest, mut cells, figures, comparison, partial, config, source, server, .. } = results;
    if let Some(compared) = &mut compared {
        compared.set_changes(&mut cells);
        compared.differs.iter_mut().for_each(|(_, was, is)| (*was, *is) = (portable.text(was), portable.text(is)));
    }
    let mut facts = vec![
        ("run with".to_owned(), format!("Foretoken {}", manifest.version)),
        ("digest of what was asked".to_owned(), manifest.digest),
    ];
    facts.extend(manifest.inputs.iter().map(|(path, digest)| (format!("input {path}"), format!("blake3 {digest}"))));
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let host_note = comparison.host_band.map(|band| band.in_words());
    let warnings = comparison.warnings.iter().map(|w| portable.text(w)).collect();
    let facts = facts.iter().map(|(name, value)| (portable.text(name), value.clone())).collect();
    let config = portable.text(&config);
    let partial = partial.map(|p| portable.text(&p));
    let run = RunFacts {
        facts,
        title: server.map_or(String::new(), |server| format!("Observed: {server}")),
        scope,
        config,
        warnings,
        partial,
        first,
        beside: host_note,
        claims,
        compared,
        explorer,
        version,
    };
    let report = Report { name: manifest.name, source, cells };
    let changes = run.compared.as_ref().map(|compared| compared.sentence(&report));
    // A comparison with other results has figures of its own, so nothing was drawn before.
    let figures = figures.filter(|_| run.compared.is_none()).unwrap_or_else(|| foretoken_report::figures(&report));
    let html = run_page(&report, &figures, &run).html();
    let mut files = vec![(TIMING, timing.as_str())];
    files.extend(explorer_page.as_deref().map(|text| (PAGE, text)));
    // The page's HTML is written last, so that its links never point at missing files.
    files.push((INDEX, &html));
    Ok(Written { page: keep(to, &files)?, changes })
}

fn keep(to: &Path, files: &[(&str, &str)]) -> Result<PathBuf> {
    let index = to.join(INDEX);
    make_folder(to).map_err(|e| e.help(ELSEWHERE))?;
    if std::fs::read(&index).is_ok_and(|old| !old.windows(MARK.len()).any(|w| w == MARK.as_bytes())) {
        let problem = Problem::bad_input(format!("{} is a page that Foretoken did not make", index.display()));
        return Err(problem.help(ELSEWHERE));
    }
    for (name, text) in files {
        Staged::write_all_to(&to.join(name), text.as_bytes()).map_err(write_problem)?;
    }
    Ok(index)
}

const ELSEWHERE: &str = "choose another folder with -o";
