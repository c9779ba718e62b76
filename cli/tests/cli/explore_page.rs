//! What the explorer's page shows in a browser: links, sentences, memory and files. No setting of its controls may make
//! the page show NaN or undefined, or let a text leave its figure.

use crate::browser::{attribute_of, open, open_with, text_of};
use crate::explore::{checked, every_feature, explorer, silent};
use crate::explore_library::{Draws, any_point};
use crate::support::Place;
use serde_json::{Value, json};

#[test]
fn the_hash_is_the_state_of_the_page() {
    let (_place, page) = explorer(&[]);
    let hash = "hw=a100-80g&target=vicuna-7b&draft=vicuna-68m&a=0.6&k=3&n=4&c=512";
    let Some(opened) = open(&page, &format!("#{hash}")) else { return };
    silent(&opened);
    let shown = |id: &str| attribute_of(&opened.dom, id, "data-value").parse::<f64>().unwrap();
    let Some(checked) = checked(&page, &[hash]) else { return };
    for id in ["speedup", "step_s"] {
        assert_eq!(shown(id), checked[0][id].as_f64().unwrap(), "{id}");
    }
    assert!(text_of(&opened.dom, "headline").starts_with("Drafting 3 tokens pays: 2."), "{}", opened.dom);
    // The page drew at least 3 curves, a map with one field for each draft length and batch size, and a table of at
    // least 30 rows.
    for (part, least) in [("<path", 3), ("class=\"cell\"", 16 * 30), ("<tr>", 30)] {
        assert!(opened.dom.matches(part).count() >= least, "{part}");
    }
}

#[test]
fn an_invalid_url_hash_is_ignored_and_reported() {
    let (_place, page) = explorer(&[]);
    let opened_at = |hash: &str| {
        let opened = open(&page, hash).inspect(silent)?;
        Some((attribute_of(&opened.dom, "speedup", "data-value"), text_of(&opened.dom, "link")))
    };
    let Some((usual, nothing)) = opened_at("") else { return };
    assert_eq!(nothing, "");
    let (speedup, said) = opened_at("#hw=a9000&a=x&k=&n=many&zzz=1&%").unwrap();
    assert_eq!(speedup, usual);
    for part in [
        "The link does not fit this page.", "hw = \"a9000\" is not known here: it stays h100. Known are ",
        "a = \"x\" is not a number: it stays 0.7.", "k = \"\" is not a number", "n = \"many\" is not a number",
        "There is no setting \"zzz\".", "There is no setting \"%\".",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (_, said) = opened_at("#k=99&n=7.6").unwrap();
    assert!(said.contains("k = 99 becomes 16.") && said.contains("n = 7.6 becomes 8."), "{said}");
    let (other, said) = opened_at("#n=1024&k=16&a=0").unwrap();
    assert!(other != usual && said.is_empty(), "{said}");
}

/// If the target model's passes cost nothing, every speedup would be 0 / 0.
#[test]
fn a_target_with_zero_cost_is_reported() {
    let (_place, page) = explorer(&[]);
    let Some(opened) = open(&page, "#hw=linear&ta=0&tg=0&td=0&da=0&dg=0&dd=0") else { return };
    silent(&opened);
    assert!(
        text_of(&opened.dom, "headline").contains("Give the target a cost"),
        "{}",
        text_of(&opened.dom, "headline")
    );
    crate::pages::sound("a target without a cost", &opened.dom);
}

/// The page opens with the hardware of the experiment `x.toml` and with its acceptance, a constant rate of 0.7, and the
/// context and batch size of plain decoding.
#[test]
fn an_experiment_can_be_explored_without_a_run() {
    let (_place, page) = explorer(&["x.toml"]);
    let text = std::fs::read_to_string(page).unwrap();
    assert!(text.contains("hardware of the run small") && text.contains("\"opens\":\"a=0.7&c=160&n=3\""));
    let error = Place::new().fails(&["explore", "x.toml", "--profile", "p.toml"], 2);
    assert!(error.contains("cannot be used with"), "{error}");
}

#[test]
fn unwritable_pages_and_invalid_profiles_are_refused() {
    let place = Place::new();
    std::fs::write(place.path("file"), "").unwrap();
    assert!(place.fails(&["explore", "-o", "file/below"], 1).contains("choose another folder with -o"));
    assert!(place.fails(&["explore", "--profile", "none.toml"], 2).contains("cannot read the profile"));
    let error = place.fails(&["explore", "--profile", "x.toml"], 2);
    assert!(error.contains("x.toml") && error.contains("foretoken profile"), "{error}");
    let mut free: toml::Table = every_feature().parse().unwrap();
    let nothing = toml::toml! { linear = { alpha_s = 0.0, gamma_s = 0.0, delta_s = 0.0 } };
    free["target"]["cost"] = toml::Value::Table(nothing);
    std::fs::write(place.path("free.toml"), toml::to_string(&free).unwrap()).unwrap();
    let error = place.fails(&["explore", "--profile", "free.toml"], 2);
    assert!(error.contains("a target pass over one token takes no time"), "{error}");
}

fn words(page: &Value) -> Vec<String> {
    page["said"].as_array().unwrap().iter().map(|said| said.as_str().unwrap().to_owned()).collect()
}

/// With a mixture of experts, drafting pays at middle batch sizes only. At batch size 1, draft tokens make the step
/// read more experts. At large batch sizes, computation limits the step.
#[test]
fn batch_sizes_that_pay_are_said_as_intervals() {
    let (_place, page) = explorer(&[]);
    let hashes =
        ["target=mixtral-8x7b&tp=2&k=3&host=measured", "hw=linear&a=1&tg=0&dg=0", "hw=linear&a=0", "hw=linear&k=0"];
    let Some(all) = checked(&page, &hashes) else { return };
    let [[2, last]] = serde_json::from_value::<Vec<[u32; 2]>>(all[0]["pays"].clone()).unwrap()[..] else {
        panic!("{}", all[0]["pays"])
    };
    assert!(words(&all[0])[1].contains(&format!("Length 3 pays at batch sizes 2 to {last}.")), "{:?}", words(&all[0]));
    assert_eq!(words(&all[1])[1], "Length 4 pays at every batch size up to 1024.");
    assert_eq!(words(&all[2])[1], "Length 4 pays at no batch size up to 1024.");
    assert_eq!(words(&all[3]).len(), 1, "{:?}", words(&all[3]));
}

#[test]
fn what_does_not_fit_is_said_and_hatched() {
    let (_place, page) = explorer(&[]);
    let hashes =
        ["n=300&c=1200&k=0", "n=300&c=1200&k=4", "hw=l4&target=llama-3.1-8b&k=4", "hw=l4&target=llama-3.1-8b&k=0"];
    let Some(all) = checked(&page, &hashes) else { return };
    let full = |i: usize| all[i]["full"].as_str().unwrap().to_owned();
    // Draft length 0 needs no draft model in memory. Then the batch fits.
    assert_eq!(full(0), "");
    assert!(full(1).starts_with("This batch does not fit: its KV, the draft's with it, takes "), "{}", full(1));
    assert!(full(1).contains("are left beside the weights of target and draft. "), "{}", full(1));
    assert!(full(2).contains("of target and draft") && full(2) != full(3), "{} {}", full(2), full(3));
    let opened = open(&page, "#n=300&c=1200&k=4").unwrap();
    silent(&opened);
    assert!(opened.dom.matches("url(#curve-hatch)").count() == 2 && opened.dom.contains("url(#map-hatch)"));
    assert!(!open(&page, "#hw=linear").unwrap().dom.contains("curve-hatch"));
}

/// A roofline has no host time. If drafting pays without host time and not with the host time of a measured server, or
/// the reverse, the page says that the answer is undecided.
#[test]
fn an_answer_that_turns_within_the_band_is_undecided() {
    let (_place, page) = explorer(&[]);
    let hashes = ["n=32", "n=4", "n=32&over=1", "n=32&host=measured", "n=1024&c=64", "hw=linear", "n=100&k=0"];
    let Some(all) = checked(&page, &hashes) else { return };
    let undecided = |i: usize| words(&all[i])[0].starts_with("Undecided: drafting ");
    assert_eq!((0..hashes.len()).filter(|&i| undecided(i)).collect::<Vec<_>>(), [0, 6], "{:?}", words(&all[6]));
    assert!(words(&all[0])[0].contains("without host time") && words(&all[0])[0].contains("GH200"));
    assert!(words(&all[1]).iter().any(|said| said.contains("the answer stays")), "{:?}", words(&all[1]));
}

/// The text of a page that opens the explorer's page in a frame of two widths. For each width it sets the controls to
/// each of `hashes` (URL hashes), and lists faults, such as NaN or a text outside of its figure.
fn driver(hashes: &[String]) -> String {
    let hashes = json!(hashes);
    format!(
        r#"<!doctype html><iframe id="frame" src="explore.html" style="height: 3000px; border: 0"></iframe><pre id="found"></pre><script>
const [frame, found] = [document.getElementById("frame"), []];
frame.onload = () => {{
  const [view, page] = [frame.contentWindow, frame.contentDocument];
  for (const width of [390, 1280]) {{
    frame.style.width = `${{width}}px`;
    for (const hash of {hashes}) {{
      view.history.replaceState(null, "", `#${{hash}}`);
      view.dispatchEvent(new view.HashChangeEvent("hashchange"));
      for (const part of page.querySelectorAll("details")) part.open = true;
      const shown = [...page.body.children].filter((part) => part.tagName !== "SCRIPT").map((part) => part.outerHTML).join("");
      if (view.innerWidth !== width) found.push(`the frame is ${{view.innerWidth}} wide`);
      const word = /.{{0,60}}(NaN|undefined|Infinity|∞|…<).{{0,20}}/.exec(shown);
      if (word) found.push(`${{width}} ${{hash}} says ${{word[0]}}`);
      if (page.documentElement.scrollWidth > width) found.push(`${{width}} ${{hash}} is ${{page.documentElement.scrollWidth}} wide`);
      for (const svg of page.querySelectorAll("svg")) {{
        const {{ width: w, height: h }} = svg.viewBox.baseVal;
        for (const text of svg.querySelectorAll("text:not([transform])")) {{
          const box = text.getBBox();
          if (box.x < -1 || box.x + box.width > w + 1 || box.y < -1 || box.y + box.height > h + 1)
            found.push(`${{width}} ${{hash}}: "${{text.textContent}}" leaves its figure`);
        }}
      }}
    }}
  }}
  document.getElementById("found").textContent = JSON.stringify(found);
}};
</script>"#
    )
}

#[test]
fn no_state_of_the_page_has_a_fault_at_two_widths() {
    let (place, page) = explorer(&[]);
    let mut draws = Draws(9);
    let mut hashes: Vec<String> = (0..25).map(|_| any_point(&mut draws, &[]).hash).collect();
    for extreme in [
        "", "k=0", "k=16&n=1024&c=131072&cost=20", "k=16&n=1&c=16&cost=0.05&a=1", "a=0&k=16",
        "hw=linear&ta=0&tg=0&td=0&da=0&dg=0&dd=0", "hw=linear&ta=1000000&tg=1000000&td=1000000&n=1024&c=131072",
        "hw=own&gb=0.1&gf=0.1&gm=0.1&gl=0.1&tp=8", "hw=own&gb=1000000&gf=1000000&gm=1000000&gl=1000000",
        "rate=100000&out=131072", "rate=0.001&out=2&k=0", "rate=5&host=measured&n=9", "acc=by-depth&rates=0,0,0",
        "hw=nosuch&target=%3Cb%3E&zzz=1",
    ] {
        hashes.push(extreme.to_owned());
    }
    std::fs::write(place.path("pages/driver.html"), driver(&hashes)).unwrap();
    for more in [&["--allow-file-access-from-files"][..], &["--allow-file-access-from-files", "--force-dark-mode"]] {
        let Some(opened) = open_with(&place.path("pages/driver.html"), "", more) else { return };
        silent(&opened);
        let found: Value = serde_json::from_str(&text_of(&opened.dom, "found")).unwrap();
        assert_eq!(found, json!([]), "{found:#}");
    }
    assert!(page.exists());
}
