//! Pages in a real browser: they open from disk, and the console stays silent. Needs Debian's `chromium`; says `SKIPPED`
//! without.

use crate::support::Place;
use std::path::Path;
use std::process::Command;

/// What a page did in the browser.
pub struct Visit {
    /// The document after its scripts ran.
    pub dom: String,
    /// Everything it wrote to the console, errors that nobody caught among it.
    pub console: Vec<String>,
}

/// Opens a page in headless Chromium; `None` when there is none on this machine. `query` (empty, or from `#` or `?` on) goes
/// after its path.
pub fn visit(page: &Path, query: &str) -> Option<Visit> {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0", "--dump-dom"])
        .args(["--virtual-time-budget=5000", "--window-size=1100,900", "--proxy-server=127.0.0.1:9"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}{query}", page.display()))
        .output();
    let Ok(output) = output else {
        eprintln!("SKIPPED: no chromium on this machine (apt-get install chromium): {} was not opened", page.display());
        return None;
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "chromium failed: {stderr}");
    let console = stderr.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    Some(Visit { dom: String::from_utf8_lossy(&output.stdout).into_owned(), console })
}

/// The harness sees what it is there to see.
#[test]
fn an_error_on_a_page_is_noticed() {
    let place = Place::new();
    std::fs::write(place.path("bad.html"), "<!DOCTYPE html><title>t</title><script>nothing.there()</script>").unwrap();
    let Some(visit) = visit(&place.path("bad.html"), "") else { return };
    assert!(visit.console.iter().any(|line| line.contains("nothing is not defined")), "{:?}", visit.console);
}

#[test]
fn a_report_opens_without_a_word_on_the_console_and_its_tables_sort() {
    let place = Place::new();
    place.run("out", &[]);
    let path = place.path("out/report/index.html");
    let Some(quiet) = visit(&path, "") else { return };
    assert!(quiet.console.is_empty(), "{:?}", quiet.console);
    assert!(quiet.dom.contains("20 runs in"), "timing.js beside the page was not read");

    // A script of the test presses a heading twice and writes the column's values after each into the title.
    let driver = "<script>\
        const button = document.querySelectorAll('#results th button')[2];\
        const values = () => [...document.querySelectorAll('#results tbody tr')].map(r => r.cells[2].dataset.by).join(' ');\
        button.click(); const first = values(); button.click();\
        document.title = first + '|' + values() + '|' + button.parentElement.ariaSort;</script></body>";
    let page = std::fs::read_to_string(&path).unwrap().replacen("</body>", driver, 1);
    std::fs::write(place.path("out/report/driven.html"), page).unwrap();
    let driven = visit(&place.path("out/report/driven.html"), "").unwrap();
    assert!(driven.console.is_empty(), "{:?}", driven.console);
    let title = driven.dom.split("<title>").nth(1).unwrap().split("</title>").next().unwrap();
    let parts: Vec<&str> = title.split('|').collect();
    let numbers = |text: &str| text.split(' ').map(|n| n.parse::<f64>().unwrap()).collect::<Vec<_>>();
    let (down, up) = (numbers(parts[0]), numbers(parts[1]));
    assert!(down.len() == 8 && down.is_sorted_by(|a, b| a >= b), "largest first: {title}");
    assert!(up.is_sorted() && down != up, "then smallest first: {title}");
    assert_eq!(parts[2], "ascending");
}
