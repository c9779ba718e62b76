//! Opens a page in a headless browser and returns the resulting document and the console's messages.

use crate::support::Place;
use foretoken_tests::{Part, skip};
use std::path::Path;
use std::process::Command;

/// The result of opening a page.
pub struct Opened {
    /// The document after its scripts ran.
    pub dom: String,
    /// Messages that the page wrote to the console: errors, warnings, exceptions.
    pub console: Vec<String>,
}

/// Opens the page, with `after` appended to its URL. If there is no Chromium, the test counts as skipped, and this
/// returns `None`. `FORETOKEN_CHROMIUM` gives the path of a Chromium that is not in the PATH.
pub fn open(page: &Path, after: &str) -> Option<Opened> {
    open_with(page, after, &[])
}

/// Like [`open`], but also passes the arguments `more` to the browser.
pub fn open_with(page: &Path, after: &str, more: &[&str]) -> Option<Opened> {
    let named = std::env::var("FORETOKEN_CHROMIUM").ok();
    let names = named.iter().map(String::as_str).chain(["chromium", "chromium-browser", "google-chrome"]);
    let profile = tempfile::tempdir().unwrap();
    for name in names {
        let output = Command::new(name)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--enable-logging=stderr"])
            .args(["--proxy-server=127.0.0.1:9"])
            .args(["--virtual-time-budget=10000", "--window-size=1200,2400", "--dump-dom"])
            .args(more)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("file://{}{after}", page.display()))
            .output();
        let Ok(output) = output else { continue };
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name} cannot open {}:\n{stderr}", page.display());
        let console = stderr.lines().filter(|line| line.contains(":CONSOLE")).map(str::to_owned).collect();
        return Some(Opened { dom: String::from_utf8(output.stdout).unwrap(), console });
    }
    skip(Part::Chromium, "there is no Chromium to open a page in");
    None
}

/// The text of the element with this id.
pub fn text_of(dom: &str, id: &str) -> String {
    let (_, after) = dom.split_once(&format!("id=\"{id}\"")).unwrap_or_else(|| panic!("no element `{id}` in\n{dom}"));
    let (_, text) = after.split_once('>').unwrap();
    let text = text.split_once('<').unwrap().0;
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

/// The value of an attribute of the element with this id.
pub fn attribute_of(dom: &str, id: &str, attribute: &str) -> String {
    let (_, after) = dom.split_once(&format!("id=\"{id}\"")).unwrap_or_else(|| panic!("no element `{id}` in\n{dom}"));
    let tag = after.split_once('>').unwrap().0;
    let (_, value) = tag.split_once(&format!("{attribute}=\"")).unwrap();
    value.split_once('"').unwrap().0.to_owned()
}

#[test]
fn console_messages_of_a_page_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("broken.html");
    std::fs::write(&page, "<p id=\"p\" data-x=\"7\">a &amp; b</p><script>nothing.here();</script>").unwrap();
    let Some(opened) = open(&page, "") else { return };
    assert_eq!((text_of(&opened.dom, "p").as_str(), attribute_of(&opened.dom, "p", "data-x").as_str()), ("a & b", "7"));
    assert!(opened.console.iter().any(|line| line.contains("nothing is not defined")), "{:?}", opened.console);
}

#[test]
fn a_report_opens_without_console_messages_and_its_tables_sort() {
    let place = Place::new();
    place.run_drawn("out", &[]);
    let path = place.path("out/report/index.html");
    let Some(quiet) = open(&path, "") else { return };
    assert!(quiet.console.is_empty(), "{:?}", quiet.console);
    assert!(quiet.dom.contains("20 runs in"), "timing.js beside the page was not read");

    // The report's link opens the explorer (the page of break-even points) with the hardware of this run.
    let link =
        quiet.dom.split("href=\"explore.html").nth(1).expect("a link to the explorer").split('"').next().unwrap();
    let explorer = open(&place.path("out/report/explore.html"), &link.replace("&amp;", "&")).unwrap();
    assert!(explorer.console.is_empty(), "{:?}", explorer.console);
    assert!(explorer.dom.contains("hardware of the run small") && !text_of(&explorer.dom, "headline").is_empty());

    // This script clicks a column's heading twice. After each click it writes the values of the column into the page's
    // title. The script is a file beside the page, because the page's Content-Security-Policy allows no other new
    // scripts.
    let driver = "\
        const button = document.querySelectorAll('#results th button')[2];\
        const values = () => [...document.querySelectorAll('#results tbody tr')].map(r => r.cells[2].dataset.by).join(' ');\
        button.click(); const first = values(); button.click();\
        document.title = first + '|' + values() + '|' + button.parentElement.ariaSort;";
    std::fs::write(place.path("out/report/driver.js"), driver).unwrap();
    let page =
        std::fs::read_to_string(&path).unwrap().replacen("</body>", "<script src=\"driver.js\"></script></body>", 1);
    std::fs::write(place.path("out/report/driven.html"), page).unwrap();
    let driven = open(&place.path("out/report/driven.html"), "").unwrap();
    assert!(driven.console.is_empty(), "{:?}", driven.console);
    let title = driven.dom.split("<title>").nth(1).unwrap().split("</title>").next().unwrap();
    let parts: Vec<&str> = title.split('|').collect();
    let numbers = |text: &str| text.split(' ').map(|n| n.parse::<f64>().unwrap()).collect::<Vec<_>>();
    let (down, up) = (numbers(parts[0]), numbers(parts[1]));
    assert!(down.len() == 8 && down.is_sorted_by(|a, b| a >= b), "largest first: {title}");
    assert!(up.is_sorted() && down != up, "then smallest first: {title}");
    assert_eq!(parts[2], "ascending");
}
