//! Figures for a paper as PDF, made from their SVG. Fonts of this machine are embedded.

use foretoken_report::Staged;
use foretoken_run::cells::write_problem;
use foretoken_run::spec::problem::{Problem, Result};
use std::path::Path;
use std::sync::Arc;
use svg2pdf::usvg::fontdb::{Database, Family, Query};
use svg2pdf::usvg::{Options, Tree};
use svg2pdf::{ConversionOptions, PageOptions};

/// The fonts of the figures' texts, in order of preference.
const FONTS: [&str; 4] = ["Helvetica", "Arial", "Liberation Sans", "DejaVu Sans"];

/// Converts figures to PDF with the fonts of this machine.
pub struct Pdfs {
    options: Options<'static>,
}

impl Pdfs {
    /// Looks up the fonts of this machine. `None` if it has none of [`FONTS`].
    pub fn on_this_machine() -> Option<Pdfs> {
        let mut fonts = Database::new();
        fonts.load_system_fonts();
        Pdfs::with(fonts)
    }

    fn with(fonts: Database) -> Option<Pdfs> {
        let has = |name: &str| fonts.query(&Query { families: &[Family::Name(name)], ..Query::default() }).is_some();
        let name = FONTS.into_iter().find(|name| has(name))?;
        let options = Options { font_family: name.to_owned(), fontdb: Arc::new(fonts), ..Options::default() };
        Some(Pdfs { options })
    }

    /// Writes the PDF of the figure `svg` beside it. Returns the PDF's name.
    pub fn write(&self, folder: &Path, svg: &str) -> Result<String> {
        let path = folder.join(svg);
        let failed = |what: &dyn std::fmt::Display| Problem::failed(format!("no PDF of {}: {what}", path.display()));
        let text = std::fs::read_to_string(&path).map_err(|e| failed(&e))?;
        let pdf = converted(&text, &self.options).map_err(|e| failed(&e))?;
        let name = format!("{}.pdf", svg.trim_end_matches(".svg"));
        Staged::write_all_to(&folder.join(&name), &pdf).map_err(write_problem)?;
        Ok(name)
    }
}

/// The PDF of the SVG document `svg`, or the reason why it cannot be converted.
fn converted(svg: &str, options: &Options<'_>) -> std::result::Result<Vec<u8>, String> {
    let tree = Tree::from_str(&with_dots(svg), options).map_err(|e| e.to_string())?;
    // 96 units of an SVG are an inch. With this resolution the PDF's page is as wide as the figure says.
    let page = PageOptions { dpi: 96.0 };
    svg2pdf::to_pdf(&tree, ConversionOptions::default(), page).map_err(|e| e.to_string())
}

/// The SVG document, changed so that the PDF shows its dots. In the figures a dot is a line of length 0 with round
/// ends. The converter leaves such a line out, so each line of length 0 gets a length that no reader sees.
fn with_dots(svg: &str) -> String {
    svg.replace("h0\"", "h.01\"").replace("h0M", "h.01M")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_are_in_the_pdf() {
        let svg = |dot: &str| {
            format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"20\" height=\"20\"><path d=\"M1 1h9\" \
                 stroke=\"#000000\"/>{dot}</svg>"
            )
        };
        let size = |dot: &str| converted(&svg(dot), &Options::default()).unwrap().len();
        let dot = "<path stroke=\"#112233\" stroke-width=\"4\" stroke-linecap=\"round\" d=\"M5 5h0M9 9h0\"/>";
        assert!(size(dot) > size(""), "the dots are left out");
        assert_eq!(with_dots("M1 1h0.5"), "M1 1h0.5");
    }

    #[test]
    fn a_machine_without_a_font_makes_no_pdf() {
        assert!(Pdfs::with(Database::new()).is_none());
    }
}
