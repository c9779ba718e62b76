//! A headless browser that stays open. The test sends it DevTools commands over a pipe. So the test can see each page
//! at a stated width, in light and dark, and on paper.

use foretoken_tests::{Part, skip};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// How a page is seen: width of the window, light or dark, screen or paper.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Width of the window in CSS pixels.
    pub width: u32,
    pub dark: bool,
    /// Is the page seen as it would be printed?
    pub paper: bool,
}

/// An open browser with one tab. It ends when the value is dropped.
pub struct Browser {
    child: Child,
    commands: File,
    answers: BufReader<File>,
    /// Number of the last DevTools command that was sent.
    last: u64,
    /// The id of the tab's DevTools session; `None` until the tab is attached.
    session: Option<String>,
    /// Errors and warnings of the console since the page was opened.
    console: Vec<String>,
    /// Has the page finished loading since it was last opened?
    loaded: bool,
    _folder: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser. If there is no Chromium, the test counts as skipped, and this returns `None`.
    pub fn start() -> Option<Browser> {
        let named = std::env::var("FORETOKEN_CHROMIUM").ok();
        let mut names = named.iter().map(String::as_str).chain(["chromium", "chromium-browser", "google-chrome"]);
        let runs = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success());
        let Some(name) = names.find(runs) else {
            skip(Part::Chromium, "there is no Chromium to open a page in");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        assert!(Command::new("mkfifo").args([path("commands"), path("answers")]).status().unwrap().success());
        // With `--remote-debugging-pipe` the browser reads commands from file descriptor 3 and writes answers to file
        // descriptor 4.
        let child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<\"$COMMANDS\" 4>\"$ANSWERS\"", name])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe"])
            .args(["--proxy-server=127.0.0.1:9", "--hide-scrollbars", "about:blank"])
            .arg(format!("--user-data-dir={}", path("profile")))
            .env("COMMANDS", path("commands"))
            .env("ANSWERS", path("answers"))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Opening a named pipe waits until the process at its other end opens it. The shell opens the two pipes in the
        // same order, so neither process waits for ever.
        let commands = File::options().write(true).open(path("commands")).unwrap();
        let answers = BufReader::new(File::open(path("answers")).unwrap());
        let mut browser = Browser {
            child,
            commands,
            answers,
            last: 0,
            session: None,
            console: Vec::new(),
            loaded: false,
            _folder: folder,
        };
        let tab = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attached = browser.call("Target.attachToTarget", json!({ "targetId": tab["targetId"], "flatten": true }));
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Sends a command and returns its result. Events that come before the result are handled by `message`.
    fn call(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut command = json!({ "id": self.last, "method": method, "params": params });
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        self.commands.write_all(format!("{command}\0").as_bytes()).unwrap();
        loop {
            let message = self.message();
            if message["id"] == self.last {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
        }
    }

    /// The next message of the browser: a result or an event.
    fn message(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.answers.read_until(0, &mut bytes).unwrap();
        assert_eq!(bytes.pop(), Some(0), "the browser ended");
        let message: Value = serde_json::from_slice(&bytes).unwrap();
        let params = &message["params"];
        match message["method"].as_str() {
            Some("Page.loadEventFired") => self.loaded = true,
            Some("Runtime.exceptionThrown") => self.console.push(params["exceptionDetails"].to_string()),
            Some("Log.entryAdded") => self.console.push(params["entry"].to_string()),
            Some("Runtime.consoleAPICalled") => self.console.push(params["args"].to_string()),
            _ => {}
        }
        message
    }

    /// Opens a page, with `after` appended to its URL, and waits until it has finished loading.
    pub fn open(&mut self, page: &Path, after: &str) {
        // A page whose URL differs in the hash alone would not be loaded again.
        self.call("Page.navigate", json!({ "url": "about:blank" }));
        while !std::mem::take(&mut self.loaded) {
            self.message();
        }
        self.console.clear();
        self.call("Page.navigate", json!({ "url": format!("file://{}{after}", page.display()) }));
        while !self.loaded {
            self.message();
        }
        self.loaded = false;
    }

    /// Changes how the open page is seen: width of the window, light or dark, screen or paper.
    pub fn look(&mut self, look: Look) {
        let metrics = json!({ "width": look.width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let scheme = json!([{ "name": "prefers-color-scheme", "value": if look.dark { "dark" } else { "light" } }]);
        let media = if look.paper { "print" } else { "screen" };
        self.call("Emulation.setEmulatedMedia", json!({ "media": media, "features": scheme }));
    }

    /// The value of a JavaScript expression in the open page. A promise is awaited.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let result = self.call("Runtime.evaluate", params);
        assert!(result["exceptionDetails"].is_null(), "{}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    /// Errors and warnings of the console since the page was opened.
    pub fn console(&self) -> &[String] {
        &self.console
    }

    /// Prints the open page, and throws the PDF away.
    pub fn print(&mut self) {
        self.call("Page.printToPDF", json!({}));
    }

    /// Returns a picture of the whole page, as PNG in base64.
    pub fn picture(&mut self) -> String {
        let whole = json!({ "format": "png", "captureBeyondViewport": true });
        self.call("Page.captureScreenshot", whole)["data"].as_str().unwrap().to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
