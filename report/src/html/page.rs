//! An HTML page as data (title, sections and parts), and how it becomes an HTML document.

use super::dark;
use super::policy::policy;
use super::table::Table;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{Environment, HtmlEscape, UndefinedBehavior, context};
use serde::{Serialize, Serializer};

/// An HTML page, complete in one file.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Page {
    /// The title, shown in the window's bar and as heading.
    pub title: String,
    /// A line above the heading: the kind of page, and where its numbers come from.
    pub kind: String,
    /// A line under the heading: for which models, hardware, load and bounds the results hold; empty for none.
    pub scope: String,
    /// Elements of the page (texts, figures, tables) under the heading, before the first section.
    pub lead: Vec<Part>,
    /// The sections, in order. A page with more than one section gets a table of contents.
    pub sections: Vec<Section>,
    /// The text at the foot of the page: the program and its version.
    pub foot: String,
    /// JavaScript of this page, run after its content is loaded; empty for none.
    pub script: String,
    /// CSS of this page, added to the shared style; empty for none.
    pub style: String,
    /// Names of script files in the page's folder that the page loads if they exist.
    pub beside: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Section {
    /// The section's anchor (id in links): letters, digits and `-`.
    pub id: String,
    pub title: String,
    /// The section's contents (texts, figures, tables), in order.
    pub parts: Vec<Part>,
}

/// One element of a page's section, such as a paragraph, a figure or a table.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "lowercase", tag = "kind", content = "of")]
pub enum Part {
    Text(String),
    /// The main result in a sentence, in large type.
    Headline(String),
    List(Vec<String>),
    /// A fact that the reader must know before reading the results.
    Warning(String),
    /// A drawing with its caption: source of the numbers, number of samples, seeds, kind of interval.
    Figure {
        #[serde(serialize_with = "inline")]
        svg: String,
        /// The text below the drawing.
        caption: String,
    },
    /// A text in place of a figure that was not drawn. It says why, or which setting makes the program draw the figure.
    Missing(String),
    /// A table that the reader can sort.
    Table(Table),
    Facts(Vec<(String, String)>),
    /// Single numbers with their names, each in a tile.
    Tiles(Vec<(String, String)>),
    /// A line for a terminal, with a button that copies it if the page has the script [`COPY`].
    Command(String),
    /// Text that is shown as it is, folded away under a title.
    Folded {
        /// The title, which stays visible while the text is folded away.
        title: String,
        /// The text that is folded away.
        text: String,
    },
    /// More elements of the page, such as texts and tables, folded away under a title.
    More {
        /// The title, which stays visible while the elements are folded away.
        title: String,
        /// The elements of the page that are folded away.
        parts: Vec<Part>,
    },
    /// HTML that is inserted without escaping, so it must be trusted.
    Html(String),
}

impl Section {
    /// A section with an anchor and a heading, and without contents.
    pub fn new(id: &str, title: &str) -> Section {
        Section { id: id.to_owned(), title: title.to_owned(), parts: Vec::new() }
    }
}

/// The HTML templates by name, compiled into the program.
const TEMPLATES: [(&str, &str); 3] = [
    ("page.html", include_str!("../../templates/page.html")),
    ("parts.html", include_str!("../../templates/parts.html")),
    ("style.css", include_str!("../../templates/style.css")),
];
/// The script with which a reader of the page sorts tables.
const SORT: &str = include_str!("../../templates/sort.js");
/// The script that emphasizes a policy in a figure while the pointer is on the policy.
const FORWARD: &str = include_str!("../../templates/forward.js");
/// The script of pages with a [`Part::Command`]: gives each a button that copies its line.
pub const COPY: &str = include_str!("../../templates/copy.js");
/// The script that opens everything folded while the page is printed.
const PRINT: &str = include_str!("../../templates/print.js");

impl Page {
    pub fn html(&self) -> String {
        let mut templates = Environment::new();
        templates.set_undefined_behavior(UndefinedBehavior::Strict);
        templates.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().expect("constant"));
        templates.add_filter("code", |text: String| code(&text));
        for (name, text) in TEMPLATES {
            templates.add_template(name, text).expect("the templates are constant, and tested");
        }
        let page = templates.get_template("page.html").expect("added above");
        let scripts = [SORT, FORWARD, PRINT, &self.script].into_iter().filter(|script| !script.is_empty());
        let policy = policy(scripts, !self.beside.is_empty());
        let mut figures = Vec::new();
        collect(self.sections.iter().flat_map(|s| &s.parts).chain(&self.lead), &mut figures);
        let styles = [dark::style(&figures), dark::forward(&figures)];
        page.render(context! { page => Serde(self), styles, scripts => [SORT, FORWARD, PRINT], policy })
            .expect("every field of a page can be shown")
    }
}

/// A text as HTML, with what stands between two backticks as code.
fn code(text: &str) -> Value {
    let parts: Vec<String> = text.split('`').map(|part| HtmlEscape(part).to_string()).collect();
    let mut html = parts[0].clone();
    for pair in parts[1..].chunks(2) {
        html += &match pair {
            [inside, behind] => format!("<code>{inside}</code>{behind}"),
            alone => format!("`{}", alone[0]),
        };
    }
    Value::from_safe_string(html)
}

fn collect<'a>(parts: impl Iterator<Item = &'a Part>, figures: &mut Vec<&'a str>) {
    for part in parts {
        match part {
            Part::Figure { svg, .. } => figures.push(svg),
            Part::More { parts, .. } => collect(parts.iter(), figures),
            Part::Table(table) => figures.extend(table.drawings()),
            _ => {}
        }
    }
}

/// Serializes an SVG document for a page. Leaves out the attributes that the page's style sets for all figures.
fn inline<S: Serializer>(svg: &str, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&svg.replace(&format!(" font-family=\"{}\"", crate::figures::FONTS), ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::Row;
    use crate::html::table::Value;

    fn page() -> Page {
        let mut section = Section::new("speed", "Speed & <more>");
        let mut table = Table::new("How fast", &[("policy", ""), ("speedup", "mean E2E over autoregressive's")]);
        table.rows.push(Row::of([Value::text("a<b"), Value::number(1.25, "1.25")]));
        section.parts = vec![
            Part::Headline("a < b".into()),
            Part::Figure { svg: "<svg><line stroke=\"#332288\"/></svg>".into(), caption: "x & y".into() },
            Part::Table(table),
            Part::Missing("No steps: set output.steps = true".into()),
            Part::More { title: "More".into(), parts: vec![Part::Folded { title: "t".into(), text: "<raw>".into() }] },
            Part::Html("<b>bold</b>".into()),
        ];
        Page { title: "T <1>".into(), kind: "run".into(), sections: vec![section], ..Page::default() }
    }

    #[test]
    fn text_is_escaped_and_drawings_are_not() {
        let html = page().html();
        for part in ["<title>T &lt;1&gt;</title>", "Speed &amp; &lt;more&gt;", "a&lt;b", "&lt;raw&gt;", "x &amp; y"] {
            assert!(html.contains(part), "{part} is missing in\n{html}");
        }
        assert!(html.contains("<svg><line stroke=\"#332288\"/></svg>") && html.contains("<b>bold</b>"));
    }

    #[test]
    fn what_stands_between_backticks_is_code() {
        let html = |text: &str| code(text).to_string();
        assert_eq!(html("run `a < b` and `c`."), "run <code>a &lt; b</code> and <code>c</code>.");
        assert_eq!((html("one ` alone"), html("`a` and `")), ("one ` alone".into(), "<code>a</code> and `".into()));
    }

    #[test]
    fn nothing_is_fetched() {
        let html = page().html();
        for part in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!html.replace("http://www.w3.org/2000/svg", "").contains(part), "{part}");
        }
        let beside = Page { beside: vec!["timing.js".into()], ..page() }.html();
        assert!(beside.contains("src=\"timing.js\"") && beside.contains(" 'self';") && !html.contains("'self'"));
    }

    #[test]
    fn numbers_carry_what_they_sort_by() {
        assert!(page().html().contains("data-by=\"1.25\""));
    }
}
