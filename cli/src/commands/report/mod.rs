//! `foretoken report`: makes the page of a results folder again, optionally compared with other results.

#[cfg(feature = "pdf")]
mod pdf;

use super::print;
use clap::Args;
use foretoken_run::cells::Folder;
use foretoken_run::report::{Results, overview, paper, write};
use foretoken_run::spec::problem::Result;
use std::path::{Path, PathBuf};

pub const EXAMPLES: &str = "Examples:
  foretoken report results/quickstart-1a2b3c4d
  foretoken report results/after --baseline results/before -o compared
  foretoken report results/quickstart-1a2b3c4d --paper figures
  foretoken report results --index";

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The folder that a run wrote its results to; with --index, a folder that holds such folders
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Other results to compare with: differences paired by policy, swept values and seed
    #[arg(long, value_name = "DIR")]
    pub baseline: Option<PathBuf>,
    /// Write a paper's figures into this folder, and no page: SVG of a column's width (PDF, too, with the feature
    /// `pdf`), captions, numbers
    #[arg(long, value_name = "DIR", conflicts_with_all = ["baseline", "output", "index"])]
    pub paper: Option<PathBuf>,
    /// Write DIR/index.html: a row for each page of results in the folders of DIR
    #[arg(long, conflicts_with_all = ["baseline", "output"])]
    pub index: bool,
    /// Folder for the page [default: DIR/report]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// Makes the page of a results folder again, or a paper's figures, or an index of several pages.
pub fn run(args: &ReportArgs) -> Result<()> {
    if args.index {
        return print(&format!("{}\n", overview(&args.folder)?.display()));
    }
    let results = Results::open(&args.folder)?;
    if let Some(to) = &args.paper {
        let mut names = paper(results, to)?;
        names.extend(pdfs_of(&names, to)?);
        return print(&names.into_iter().map(|name| format!("{}\n", to.join(name).display())).collect::<String>());
    }
    let baseline = args.baseline.as_deref().map(Results::open).transpose()?;
    let to = args.output.clone().unwrap_or_else(|| Folder::at(args.folder.clone()).report());
    let partial = results.partial.clone();
    let written = write(results, baseline, &to)?;
    if let Some(partial) = partial {
        eprintln!("warning: {partial}");
    }
    if let Some(changes) = written.changes {
        eprintln!("{changes}");
    }
    print(&format!("{}\n", written.page.display()))
}

/// Writes a PDF beside each SVG of `names`, if this machine has a font of the figures. Returns the PDFs' names.
#[cfg(feature = "pdf")]
fn pdfs_of(names: &[String], to: &Path) -> Result<Vec<String>> {
    let Some(pdfs) = pdf::Pdfs::on_this_machine() else {
        eprintln!(
            "warning: no PDFs are written: this machine has none of the fonts Helvetica, Arial, Liberation Sans and \
             DejaVu Sans"
        );
        return Ok(Vec::new());
    };
    names.iter().filter(|name| name.ends_with(".svg")).map(|svg| pdfs.write(to, svg)).collect()
}

/// Says how a program that was built without PDFs is built with them.
#[cfg(not(feature = "pdf"))]
fn pdfs_of(_: &[String], _: &Path) -> Result<Vec<String>> {
    eprintln!("note: no PDFs are written: this program was built without `--features pdf`; the SVGs are complete");
    Ok(Vec::new())
}
