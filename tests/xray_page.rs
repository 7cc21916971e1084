//! The page of `offsetfs xray` (7.5) in a real browser: Chromium without a window, driven over
//! `WebDriver` by chromedriver on the loopback interface.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use support::{code, fixture, offsetfs, scratch, told};

/// chromedriver and one session of it; both end with this.
struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

impl Browser {
    /// `None`, aloud, where there is no chromedriver and none is required.
    fn start() -> Option<Browser> {
        let started = Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).spawn();
        let mut driver = match started {
            Ok(driver) => driver,
            Err(e) => {
                let required = std::env::var_os("OFFSETFS_REQUIRE_BROWSER").is_some();
                assert!(!required, "chromedriver: {e}");
                eprintln!("skipped: no chromedriver ({e})");
                return None;
            }
        };
        let said = BufReader::new(driver.stdout.take().expect("a pipe"));
        let mark = "started successfully on port ";
        let port = said.lines().map_while(Result::ok).find_map(|line| {
            let (_, port) = line.split_once(mark)?;
            port.trim_end_matches('.').parse().ok()
        });
        let port = port.expect("chromedriver says its port");
        let mut browser = Browser { driver, port, session: String::new() };
        let args =
            ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900"];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": args},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let made = browser.request("POST", "/session", &wanted);
        browser.session = made["sessionId"].as_str().unwrap_or_else(|| panic!("{made}")).into();
        Some(browser)
    }

    fn request(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut to = TcpStream::connect(("127.0.0.1", self.port)).expect("chromedriver listens");
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let (port, length) = (self.port, body.len());
        write!(
            to,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .expect("sent");
        let mut from = BufReader::new(to);
        let mut length = 0;
        loop {
            let mut line = String::new();
            from.read_line(&mut line).expect("a line of the answer");
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().expect("a length");
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut answer = vec![0; length];
        from.read_exact(&mut answer).expect("the answer");
        let answer: Value = serde_json::from_slice(&answer).expect("JSON");
        answer["value"].clone()
    }

    fn call(&self, what: &str, body: &Value) -> Value {
        self.request("POST", &format!("/session/{}/{what}", self.session), body)
    }

    fn open(&self, page: &Path) {
        self.call("url", &json!({"url": format!("file://{}", page.display())}));
    }

    fn run(&self, script: &str) -> Value {
        self.call("execute/sync", &json!({"script": script, "args": []}))
    }

    /// Presses keys, one after the other, where the focus is.
    fn press(&self, keys: &str) {
        let key = |key: char| {
            [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})]
        };
        let actions: Vec<Value> = keys.chars().flat_map(key).collect();
        let keyboard = json!({"type": "key", "id": "keyboard", "actions": actions});
        self.call("actions", &json!({"actions": [keyboard]}));
    }

    /// What the console complained of.
    fn complaints(&self) -> Vec<Value> {
        let told = self.call("se/log", &json!({"type": "browser"}));
        told.as_array().unwrap_or_else(|| panic!("{told}")).clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !std::thread::panicking() {
            self.request("DELETE", &format!("/session/{}", self.session), &Value::Null);
        }
        // chromedriver ends its browser when it is told to end.
        let id = rustix::process::Pid::from_child(&self.driver);
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        let _ = self.driver.wait();
    }
}

fn write_page(to: &Path, offset: &str) {
    let part = fixture("exact").join("data/seed-0");
    let words = ["xray", part.to_str().expect("a path"), "--offset", offset, "--html"];
    let done = offsetfs(&[&words[..], &[to.to_str().expect("a path")]].concat());
    assert_eq!(code(&done), 0, "{}", told(&done));
}

/// 7.5: "as one self-contained interactive HTML page"
#[test]
fn page_steps_and_looks_up_again_by_keyboard() {
    let scratch = scratch();
    let page = scratch.path().join("x.html");
    write_page(&page, "680");
    assert!(std::fs::metadata(&page).expect("a page").len() < 300 << 10);
    let Some(browser) = Browser::start() else { return };
    browser.open(&page);
    let text = browser.run("return document.body.innerText");
    let wanted = "anchor 500 at 84300, 180 records scanned, 114540 reached";
    assert!(text.as_str().expect("text").contains(wanted), "{text}");
    let (tab, enter) = ('\u{e004}', '\u{e007}');
    browser.run("document.getElementById('forward').focus()");
    browser.press(&enter.to_string());
    let now = "return document.querySelector('[aria-current=step] h2').textContent";
    assert_eq!(browser.run(now), "1. The segment");
    browser.run("document.getElementById('forward').focus()");
    browser.press(&enter.to_string());
    assert_eq!(browser.run(now), "2. The index");
    browser.run("document.getElementById('back').focus()");
    browser.press(&enter.to_string());
    assert_eq!(browser.run(now), "1. The segment");
    // The page's own search agrees with the program's.
    for offset in ["500", "512", "679", "680"] {
        browser.run("const t = document.getElementById('target'); t.value = ''; t.focus()");
        browser.press(&format!("{offset}{tab}{enter}"));
        let again = scratch.path().join("again.html");
        write_page(&again, offset);
        let again = std::fs::read_to_string(again).expect("a page");
        let found = browser.run("return document.getElementById('found').textContent");
        let found = found.as_str().expect("text");
        let (_, summary) = found.split_once("; ").expect("probes and a summary");
        assert!(again.contains(summary), "{offset}: {found}");
    }
    assert_eq!(browser.complaints(), [Value::Null; 0]);
}

/// 7.5: "self-contained interactive HTML page"
#[test]
fn page_fits_a_narrow_window_and_has_two_depths() {
    let scratch = scratch();
    let page = scratch.path().join("x.html");
    write_page(&page, "680");
    let Some(browser) = Browser::start() else { return };
    let metrics = json!({"width": 375, "height": 800, "deviceScaleFactor": 1, "mobile": false});
    let narrow = json!({"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics});
    browser.call("goog/cdp/execute", &narrow);
    browser.open(&page);
    let fits = "return innerWidth === 375 && document.documentElement.scrollWidth <= 375";
    assert_eq!(browser.run(fits), true);
    let shown = "return ['newcomer', 'engineer'].map(depth => \
                 document.querySelector('p.' + depth).checkVisibility())";
    assert_eq!(browser.run(shown), json!([true, false]));
    browser.run("document.getElementById('engineer').click()");
    assert_eq!(browser.run(shown), json!([false, true]));
    let dark = json!([{"name": "prefers-color-scheme", "value": "dark"}]);
    let dark = json!({"cmd": "Emulation.setEmulatedMedia", "params": {"features": dark}});
    let ground = "return getComputedStyle(document.body).backgroundColor";
    let before = browser.run(ground);
    browser.call("goog/cdp/execute", &dark);
    assert_ne!(browser.run(ground), before);
    assert_eq!(browser.complaints(), [Value::Null; 0]);
}
