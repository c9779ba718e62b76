//! Tests the page `docs/traces.md`: every row is read as it says. Tests what gateways write, and dates that show that a
//! unit is wrong.

use crate::round_trip::file;
use foretoken_sim::Arrivals;
use foretoken_traces::{Built, Trace, TraceError, TraceFormat, TraceSpec, build, read};

fn read_with(text: &str, keys: &str) -> Result<Trace, TraceError> {
    let (_dir, path) = file(text.as_bytes());
    let spec: TraceSpec = toml::from_str(&format!("path = {path:?}\n{keys}")).expect("TOML");
    read(&spec, Some(0.01))
}

/// The requests as (arrival in ms, prompt tokens, output tokens).
fn requests(trace: &Trace) -> Vec<(u64, u32, u32)> {
    let w = &trace.workload;
    (0..w.len()).map(|i| (w.arrival[i].0 / 1_000_000_000, w.prompt_len[i], w.output_len[i])).collect()
}

#[track_caller]
fn refused(text: &str, keys: &str, words: &[&str]) {
    let error = read_with(text, keys).expect_err("a mistake");
    let all = format!("{error}\n{}", error.hint());
    for word in words {
        assert!(all.contains(word), "{word:?} is not in {all:?}");
    }
}

/// Two requests in each format of the page, with the columns that the page says: after 0 and 0.5 s, with 7 and 600
/// prompt tokens and 5 and 6 output tokens. Formats without times or without lengths have placeholders.
fn examples() -> Vec<(&'static str, Vec<&'static str>)> {
    let turn = |q: u32, input: u32, bits: &str, accepted: &str| {
        let output = bits.len();
        format!(
            r#"{{"question_id":{q},"category":"qa","turn":0,"input_tokens":{input},"output_tokens":{output},"accepted":{accepted},"bits":"{bits}"}}"#
        )
    };
    let spec_bench = format!("{}\n{}", turn(1, 7, "10010", "[1,0,1]"), turn(2, 600, "101010", "[1,1,1]"));
    vec![
        (
            "windows",
            vec![
                "t_s,input_tokens,output_tokens,category\n0,7,5,a\n0.5,600,6,b\n",
                "{\"t_s\":0,\"input_tokens\":7,\"output_tokens\":5}\n{\"t_s\":0.5,\"input_tokens\":600,\"output_tokens\":6}",
            ],
        ),
        (
            "azure",
            vec![
                "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.1,7,5\n2023-11-16 18:17:03.6000000,600,6\n",
            ],
        ),
        (
            "burstgpt",
            vec![
                "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n0,m,7,5,12,x\n0.5,m,600,6,606,x\n",
            ],
        ),
        (
            "mooncake",
            vec![
                "{\"timestamp\":0,\"input_length\":7,\"output_length\":5,\"hash_ids\":[1]}\n\
                 {\"timestamp\":500,\"input_length\":600,\"output_length\":6,\"hash_ids\":[1,2]}",
                "{\"timestamp\":0,\"input_length\":7,\"output_length\":5}\n\
                 {\"timestamp\":500,\"input_length\":600,\"output_length\":6,\"hash_ids\":[]}",
            ],
        ),
        ("opentelemetry", vec![OTLP, SPANS]),
        ("litellm", vec![SPEND_CSV, SPEND_JSON]),
        ("adaspec", vec!["Timestamp\n0\n0.5\n"]),
        (
            "spec-bench",
            vec![
                "question_id,turn,category,input_tokens,output_tokens\n1,0,qa,7,5\n2,0,qa,600,6\n",
                Box::leak(spec_bench.into_boxed_str()),
            ],
        ),
        ("specdecode-bench", vec![Box::leak(two_drafters().into_boxed_str())]),
        ("adaserve", vec!["t_s,input_tokens,output_tokens,slo_ratio\n0,7,5,1.5\n0.5,600,6,-50\n"]),
        ("lengths", vec!["num_prefill_tokens,num_decode_tokens\n7,5\n600,6\n"]),
        (
            "columns",
            vec![
                "time,in,out\n100,7,5\n100.5,600,6\n",
                "[{\"time\":100,\"in\":7,\"out\":5},\n {\"time\":100.5,\"in\":600,\"out\":6}]",
            ],
        ),
    ]
}

/// Two requests with the rounds of two drafters; the lookup's list of the second request is longer.
fn two_drafters() -> String {
    let row = |prompt: usize, output: usize, more: usize| {
        let (ids, eagle, ngram) = (vec![3; prompt], vec![1; output], vec![2; output + more]);
        format!(
            "{{\"prompt_token_ids\":{ids:?},\"acc_eagle\":{{\"acc_len\":{eagle:?}}},\"acc_ngram\":{{\"acc_len\":{ngram:?}}}}}\n"
        )
    };
    row(7, 5, 0) + &row(600, 6, 2)
}

/// A request and its server's span inside of it, an agent around both, a tool; then a second request.
const OTLP: &str = r#"{"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": [
  {"traceId": "t1", "spanId": "a", "name": "invoke_agent", "startTimeUnixNano": "1787366172000000000",
   "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "invoke_agent"}},
                  {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "607"}},
                  {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "11"}}]},
  {"traceId": "t1", "spanId": "c", "parentSpanId": "b", "startTimeUnixNano": "1787366173000000000",
   "attributes": [{"key": "gen_ai.usage.prompt_tokens", "value": {"intValue": "7"}},
                  {"key": "gen_ai.usage.completion_tokens", "value": {"intValue": 5}}]},
  {"traceId": "t1", "spanId": "b", "parentSpanId": "a", "startTimeUnixNano": "1787366172900000000",
   "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
                  {"key": "gen_ai.request.model", "value": {"stringValue": "m"}},
                  {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "7"}},
                  {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "5"}}]},
  {"traceId": "t1", "spanId": "d", "parentSpanId": "a", "startTimeUnixNano": "1787366173100000000",
   "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "execute_tool"}}]},
  {"traceId": "t2", "spanId": "a", "startTimeUnixNano": "1787366173700000000", "status": {"code": 2},
   "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}]}
]}]}]}
{"resourceSpans": [{"scopeSpans": [{"spans": [
  {"traceId": "t3", "spanId": "a", "startTimeUnixNano": "1787366173500000000",
   "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
                  {"key": "gen_ai.request.model", "value": {"stringValue": "m"}},
                  {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "600"}},
                  {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "6"}}]}
]}]}]}
"#;

/// As the Python SDK prints spans: the one that ended first comes first.
const SPANS: &str = r#"{
    "name": "chat m",
    "context": {"trace_id": "0x2", "span_id": "0x2"},
    "parent_id": null,
    "start_time": "2026-08-22T02:36:13.500000Z",
    "attributes": {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 600, "gen_ai.usage.output_tokens": 6}
}
{
    "name": "chat m",
    "context": {"trace_id": "0x1", "span_id": "0x1"},
    "parent_id": null,
    "start_time": "2026-08-22T02:36:13.000000Z",
    "attributes": {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 7, "gen_ai.usage.output_tokens": 5}
}
"#;

/// Newest first, with a failure, an answer of the cache, and an embedding.
const SPEND_CSV: &str = "request_id,call_type,prompt_tokens,completion_tokens,startTime,endTime,model,cache_hit,status
a,acompletion,600,6,2026-08-12 14:02:58.500,2026-08-12 14:03:00,m,False,success
b,acompletion,0,0,2026-08-12 14:02:58.300,2026-08-12 14:02:58.300,m,False,failure
c,acompletion,600,6,2026-08-12 14:02:58.200,2026-08-12 14:02:58.200,m,True,success
d,aembedding,50,0,2026-08-12 14:02:58.100,2026-08-12 14:02:58.200,e,False,success
e,acompletion,7,5,2026-08-12 14:02:58.000,2026-08-12 14:03:00,m,False,success
";
const SPEND_JSON: &str = r#"[
  {"request_id": "a", "call_type": "acompletion", "startTime": "2026-08-12T14:02:58.500000Z", "model": "m",
   "prompt_tokens": 600, "completion_tokens": 6, "cache_hit": "False", "metadata": {"note": "a } in a text"}},
  {"request_id": "b", "call_type": "acompletion", "startTime": "2026-08-12T14:02:58.000000Z", "model": "m",
   "prompt_tokens": 7, "completion_tokens": 5, "cache_hit": null}
]
"#;

#[test]
fn every_row_of_the_page_is_read() {
    let page = include_str!("../../../docs/traces.md");
    let rows: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | ")).map(|(name, _)| name).collect();
    let examples = examples();
    let formats: Vec<&str> = rows.iter().copied().filter(|name| TraceFormat::from_name(name).is_some()).collect();
    assert_eq!(formats.len(), TraceFormat::names().count(), "the page has every format");
    for name in formats {
        // What `profile-acceptance` writes is made by the tests of truth tables.
        if name == "truth-table" {
            continue;
        }
        let (_, texts) = examples.iter().find(|(of, _)| *of == name).unwrap_or_else(|| panic!("{name} has no example"));
        for text in texts {
            let keys = match name {
                "columns" => "columns = { arrival = \"time\", prompt = \"in\", output = \"out\" }",
                _ => "",
            };
            let trace = read_with(text, keys).unwrap_or_else(|e| panic!("{name}: {e}: {}", e.hint()));
            assert_eq!(trace.format.name(), name);
            let want = [(0, 7, 5), (500, 600, 6)].map(|(ms, prompt, output)| {
                let (prompt, output) = if trace.gives.lengths { (prompt, output) } else { (1, 1) };
                (if trace.gives.arrivals { ms } else { 0 }, prompt, output)
            });
            assert_eq!(requests(&trace), want, "{name}: {text}");
            assert_eq!(trace.gives.arrivals, !["spec-bench", "specdecode-bench", "lengths"].contains(&name));
            assert_eq!(trace.gives.lengths, name != "adaspec");
        }
    }
}

#[test]
fn what_gateways_log_besides_requests_is_counted() {
    let notes = |text: &str| read_with(text, "").expect("reads").notes.join("; ");
    let said = notes(SPEND_CSV);
    for what in ["1 failed requests", "1 answers of the gateway's cache", "1 calls that make no text", "sorted"] {
        assert!(said.contains(what), "{said}");
    }
    let said = notes(OTLP);
    for what in ["2 spans that call no model", "1 calls around other calls", "1 calls without numbers of tokens"] {
        assert!(said.contains(what), "{said}");
    }
    let two = SPEND_CSV.replace(
        "a,acompletion,600,6,2026-08-12 14:02:58.500,2026-08-12 14:03:00,m,",
        "a,acompletion,600,6,2026-08-12 14:02:58.500,2026-08-12 14:03:00,n,",
    );
    assert!(notes(&two).contains("several models are read as one load (n, m)"), "{}", notes(&two));
    assert_eq!(requests(&read_with(&two, "model = \"n\"").expect("reads")), [(0, 600, 6)]);
    refused(SPEND_CSV, "model = \"x\"", &["no usable request"]);
    refused(SPEND_CSV, "unsorted = \"error\"", &["2026-08-12 14:02:58.000 is before the row above it", "line 2"]);
}

#[test]
fn tools_that_write_mooncakes_keys_have_other_blocks_and_units() {
    let rows = "{\"timestamp\": 0.616, \"input_length\": 40, \"output_length\": 5, \"hash_ids\": [0, 1, 2]}\n\
                {\"timestamp\": 4.13, \"input_length\": 20, \"output_length\": 5, \"hash_ids\": [0, 9]}\n";
    refused(rows, "", &[":1:", "\"timestamp\"", "0.616", "unit = \"s\""]);
    refused(rows, "unit = \"s\"", &[":1:", "\"hash_ids\"", "3 ids", "block_size = 16"]);
    let trace = read_with(rows, "unit = \"s\"\nblock_size = 16").expect("reads");
    assert_eq!(requests(&trace), [(616, 40, 5), (4130, 20, 5)]);
    assert_eq!((trace.workload.prefix_block, trace.workload.prefix(0)), (16, &[0, 1][..]));
    assert_eq!(trace.workload.prefix(1), [0]);
    refused(rows, "block_size = 0", &["block_size is 0"]);
    refused("t_s,input_tokens,output_tokens\n0,1,1\n", "block_size = 16", &["option of mooncake and columns files"]);
    let sessions = "{\"session_id\": \"s\", \"timestamp\": 0, \"input_length\": 9, \"output_length\": 5}\n\
                    {\"session_id\": \"s\", \"delay\": 5000, \"input_length\": 19, \"output_length\": 5}\n";
    refused(sessions, "", &[":2:", "\"delay\"", "further turn", "session = \"session_id\", delay = \"delay\""]);
    let epoch = "{\"timestamp\": 1787366173195, \"input_length\": 9, \"output_length\": 5}\n";
    refused(epoch, "", &["213 days", "columns = { arrival = \"timestamp\""]);
}

/// The columns of a log in Mooncake's form with sessions.
const SESSIONS: &str = "columns = { arrival = \"timestamp\", prompt = \"input_length\", output = \"output_length\", prefix = \
                        \"hash_ids\", session = \"session_id\", delay = \"delay\", unit = \"ms\" }";

/// A row with a delay follows the answer to the row before it in its session, whatever rows stand between them.
#[test]
fn turns_of_sessions_follow_each_other() {
    let text = r#"{"session_id": "a", "timestamp": 1000, "input_length": 1024, "output_length": 100, "hash_ids": [0, 1]}
{"session_id": "a", "delay": 5000, "input_length": 1536, "output_length": 100, "hash_ids": [0, 1, 2]}
{"session_id": "b", "timestamp": 2000, "input_length": 9, "output_length": 8, "delay": 0}
{"session_id": "a", "delay": 2500.5, "timestamp": 9, "input_length": 1540, "output_length": 7, "hash_ids": [0, 1, 2, 3]}
{"session_id": "b", "delay": 1000, "input_length": 30, "output_length": 8}
{"timestamp": 2500, "input_length": 5, "output_length": 6}
{"session_id": "b", "timestamp": 4000, "input_length": 60, "output_length": 8}
"#;
    let trace = read_with(text, SESSIONS).unwrap_or_else(|e| panic!("{e}: {}", e.hint()));
    let w = &trace.workload;
    // In the order of the times that turns would have if answers took no time. The clock starts with the first row.
    let lengths: Vec<u32> = w.prompt_len.clone();
    assert_eq!(lengths, [1024, 9, 5, 30, 60, 1536, 1540]);
    let turns: Vec<Option<(u32, u64)>> =
        (0..7).map(|id| w.following(id).map(|(next, gap)| (next, gap.0 / 1_000_000_000))).collect();
    assert_eq!(turns, [Some((5, 5000)), Some((3, 1000)), None, None, None, Some((6, 2500)), None]);
    assert_eq!((w.gap[5].0, w.first_turns()), (2_500_500_000_000, vec![0, 1, 2, 4]));
    assert_eq!((w.arrival[0].0, w.arrival[6].0), (0, 7_500_500_000_000));
    assert_eq!((w.prefix(0), w.prefix(5), w.prefix(6)), (&[0, 1][..], &[0, 1, 2][..], &[0, 1, 2][..]));
    assert!(trace.notes.iter().any(|note| note.starts_with("3 turns are sent after the answer")), "{:?}", trace.notes);
    // The same rows as CSV.
    let csv = "s,t,d,i,o\na,1,,1024,100\na,,5,1536,100\nb,2,,9,8\na,,2.5005,1540,7\nb,,1,30,8\n,2.5,,5,6\nb,4,,60,8\n";
    let keys = "columns = { arrival = \"t\", prompt = \"i\", output = \"o\", session = \"s\", delay = \"d\" }";
    let of_csv = read_with(csv, keys).unwrap_or_else(|e| panic!("{e}: {}", e.hint())).workload;
    assert_eq!((&of_csv.next_turn, &of_csv.gap, &of_csv.arrival), (&w.next_turn, &w.gap, &w.arrival));
    // Rows without sessions make no sessions, and a row that is left out leaves its gap to the next one.
    let alone = read_with("s,t,d,i,o\na,1,,9,8\na,2,,9,8\n", keys).expect("reads").workload;
    assert!(alone.next_turn.is_empty() && requests(&read_with(csv, keys).expect("reads"))[1] == (1000, 9, 8));
    let left_out = read_with(&csv.replace("1536", "0"), &format!("{keys}\nzero_tokens = \"drop\"")).expect("reads");
    let w = &left_out.workload;
    assert_eq!(
        (w.prompt_len[5], w.following(0).map(|(next, gap)| (next, gap.0))),
        (1540, Some((5, 7_500_500_000_000)))
    );
}

#[test]
fn mistakes_in_sessions_name_their_row() {
    let row = |more: &str| format!("{{\"session_id\": \"a\", \"input_length\": 9, \"output_length\": 5, {more}}}\n");
    let first = row("\"timestamp\": 0");
    refused(&format!("{first}{}", row("\"delay\": -5")), SESSIONS, &[":2:", "\"delay\"", "\"-5\" is negative"]);
    refused(&format!("{first}{}", row("\"delay\": \"soon\"")), SESSIONS, &[":2:", "\"soon\" is not a number"]);
    refused(&format!("{first}{}", row("\"delay\": 3e10")), SESSIONS, &[":2:"]);
    refused(&format!("{first}{}", row("\"x\": 1")), SESSIONS, &[":2:", "\"timestamp\"", "is missing"]);
    let other = row("\"delay\": 5").replace("\"a\"", "\"b\"");
    refused(&format!("{first}{other}"), SESSIONS, &[":2:", "\"timestamp\"", "is missing"]);
    let alone = SESSIONS.replace(", delay = \"delay\"", "");
    refused(&first, &alone, &["columns.session and columns.delay"]);
}

/// Transformations keep the order of turns: turns that are left out leave their gaps to the next turn of the session.
#[test]
fn transformations_keep_sessions() {
    let csv = "s,t,d,i,o\na,0,,10,8\na,,1,11,8\na,,2,12,8\na,,4,13,8\nb,20,,20,8\nb,,1,21,8\n";
    let (_dir, path) = file(csv.as_bytes());
    let columns = "{ arrival = \"t\", prompt = \"i\", output = \"o\", session = \"s\", delay = \"d\" }";
    let seeded = |seed: u64, transform: &str, more: &str| {
        let text = format!(
            "arrivals = {{ trace = {{ path = {path:?}, columns = {columns} }} }}\ntransform = [{transform}]\n{more}"
        );
        build(&toml::from_str(&text).expect("TOML"), seed, None)
    };
    let built = |transform: &str, more: &str| seeded(1, transform, more);
    let turns_of = |built: Built| {
        let w = &built.workload;
        let next = |id| w.following(id).map(|(next, gap)| (w.prompt_len[next as usize], gap.as_s()));
        (built.arrivals, (0..w.len() as u32).map(|id| (w.prompt_len[id as usize], next(id))).collect::<Vec<_>>())
    };
    let turns = |transform: &str| turns_of(built(transform, "").expect("built"));
    let whole = [
        (10, Some((11, 1.0))),
        (11, Some((12, 2.0))),
        (12, Some((13, 4.0))),
        (13, None),
        (20, Some((21, 1.0))),
        (21, None),
    ];
    assert_eq!(turns(""), (Arrivals::Sessions, whole.to_vec()));
    assert_eq!(turns("{ rate-scale = 2.0 }").1, whole, "users wait as long as before");
    let window = turns("{ window = { start_s = 0.5, end_s = 5.0 } }");
    assert_eq!(window, (Arrivals::Sessions, vec![(11, Some((12, 2.0))), (12, None)]));
    assert_eq!(turns("{ max-requests = 1 }"), (Arrivals::Open, vec![(10, None)]));
    // Requests are left out by chance, on some seed each of those in the middle.
    let thinned = (0..40).filter_map(|seed| seeded(seed, "{ thin = { keep = 0.6 } }", "").ok()).map(turns_of);
    let mut gaps: Vec<(u32, f64)> = thinned.flat_map(|at| at.1).filter_map(|at| at.1).collect();
    gaps.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
    gaps.dedup();
    assert_eq!(gaps, [(11, 1.0), (12, 2.0), (12, 3.0), (13, 4.0), (13, 6.0), (13, 7.0), (21, 1.0)]);
    let both = built("", "lengths = { fixed = { prompt = 5, output = 6 } }\nsessions = { turns = 2.0, gap_s = 1.0 }");
    assert!(both.expect_err("twice").to_string().contains("sessions of its own"));
    let fixed = built("", "lengths = { fixed = { prompt = 5, output = 6 } }").expect("built");
    assert_eq!(
        (fixed.arrivals, fixed.workload.prompt_len, fixed.workload.gap[0].as_s()),
        (Arrivals::Sessions, vec![5; 6], 1.0)
    );
}

#[test]
fn an_own_log_has_prefixes() {
    let columns = "columns = { arrival = \"at\", prompt = \"usage.in\", output = \"usage.out\", prefix = \"blocks\" }";
    let keys = format!("{columns}\nblock_size = 4");
    let json = "{\"at\": 5, \"usage\": {\"in\": 10, \"out\": 2}, \"blocks\": [7, 8]}\n\
                {\"at\": 6, \"usage\": {\"in\": 10, \"out\": 2}, \"blocks\": [7, 8, 9]}\n\
                {\"at\": 7, \"usage\": {\"in\": 3, \"out\": 2}}\n";
    let csv = "at,usage.in,usage.out,blocks\n5,10,2,7 8\n6,10,2,\"[7,8,9]\"\n7,3,2,\n";
    for text in [json, csv] {
        let trace = read_with(text, &keys).expect("reads");
        assert_eq!(requests(&trace), [(0, 10, 2), (1000, 10, 2), (2000, 3, 2)]);
        let w = &trace.workload;
        assert_eq!((w.prefix(0), w.prefix(1), w.prefix(2)), (&[7, 8][..], &[7, 8][..], &[][..]));
    }
    refused(&json.replace("[7, 8, 9]", "[7]"), &keys, &[":2:", "\"blocks\"", "1 ids, but 10 tokens are 3 blocks"]);
    refused(&json.replace("[7, 8, 9]", "[\"a\"]"), &keys, &[":2:", "\"blocks\"", "list of whole numbers"]);
    refused(&json.replace("{\"in\": 3, ", "{"), &keys, &[":3:", "\"usage.in\"", "is missing"]);
    refused(json, &keys.replace("\"at\"", "\"when\""), &[":1:", "\"when\"", "missing from the first object", "at"]);
    refused(&json.replace("{\"at\": 6", "{\"at\" 6"), &keys, &[":2:", "not valid JSON"]);
    refused("[{\"at\": 6, \"usage\": {\"in\": 3, \"out\": 2}}\n", &keys, &["does not close the array"]);
}

/// Each time is a date in one unit only. Read in any other unit, the log is refused, and the error names that unit.
#[test]
fn dates_in_a_wrong_unit_are_refused() {
    let columns = |unit: &str| format!("columns = {{ arrival = \"t\", prompt = \"i\", output = \"o\"{unit} }}");
    let units = ["s", "ms", "us", "ns"];
    for (written, own) in units.into_iter().enumerate() {
        let time = |n: u64| 1_787_366_173_250_000_000u64 / 1000u64.pow(3 - written as u32) + n;
        let log = format!("t,i,o\n{},9,5\n{},9,5\n", time(0), time(1));
        for read_as in units {
            let keys = columns(&format!(", unit = \"{read_as}\""));
            if read_as == own {
                read_with(&log, &keys).unwrap_or_else(|e| panic!("{own}: {e}"));
                continue;
            }
            refused(&log, &keys, &[":2:", "\"t\"", &format!("set columns.unit = \"{own}\""), "in 2026"]);
        }
        if own != "s" {
            refused(&log, &columns(""), &[":2:", "s since 1970 is the year", &format!("columns.unit = \"{own}\"")]);
        }
    }
    // Times since the log's own start are no dates, however long the log is or however late it begins.
    for (first, last, unit) in
        [("0", "15000000", "s"), ("3600000", "90000000", "ms"), ("1500000000", "4000000000", "ns")]
    {
        let keys = columns(&format!(", unit = \"{unit}\""));
        read_with(&format!("t,i,o\n{first},9,5\n{last},9,5\n"), &keys).unwrap_or_else(|e| panic!("{first}: {e}"));
    }
    let late = "t,i,o\n2126-01-01 00:00:00,9,5\n";
    refused(late, &columns(""), &[":2:", "2126-01-01", "later than the year 2100"]);
    let azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n2126-01-01 00:00:00,9,5\n";
    refused(azure, "", &[":2:", "later than the year 2100"]);
    let seconds = "t_s,input_tokens,output_tokens\n1787366173,9,5\n";
    refused(seconds, "", &[":2:", "213 days", "columns = { arrival = \"t_s\""]);
}

/// The order error quotes what the log says, and the line of the row before.
#[test]
fn the_order_error_quotes_the_log() {
    let log = "t_s,input_tokens,output_tokens\n12.50,9,5\n\"9.250\",9,5\n";
    refused(log, "", &[":3:", "\"t_s\": 9.250 is before the row above it (12.50, line 2)", "unsorted = \"sort\""]);
    let rows = "{\"timestamp\": 900, \"input_length\": 9, \"output_length\": 5}\n\n\
                {\"timestamp\": 800, \"input_length\": 9, \"output_length\": 5}\n";
    refused(rows, "", &[":3:", "800 is before the row above it (900, line 1)"]);
}

/// JSON that is one array, objects on one line, or objects over several lines gives the same requests.
#[test]
fn json_in_every_layout_is_read() {
    let [a, b] = [(0, 7), (500, 600)].map(|(t, n)| format!("{{\"t\": {t}, \"i\": {n}, \"o\": 5, \"x\": \"[}}\\\"\"}}"));
    let keys = "columns = { arrival = \"t\", prompt = \"i\", output = \"o\", unit = \"ms\" }";
    let pretty = a.replace(", ", ",\n  ");
    for text in [
        format!("{a}\n{b}\n"),
        format!("[{a}, {b}]"),
        format!("[\n{a},\n{b}\n]\n"),
        format!("\u{feff}{pretty}\n{b}"),
        format!("{a}{b}"),
    ] {
        let trace = read_with(&text, keys).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(requests(&trace), [(0, 7, 5), (500, 600, 5)], "{text}");
    }
}

/// An arrival rate counts gaps: requests every half second come at 2 a second, however few they are.
#[test]
fn the_rate_of_a_trace_counts_gaps() {
    let rows: String = (0..20).map(|i| format!("{}.{},9,5\n", i / 2, 5 * (i % 2))).collect();
    let (_dir, path) = file(format!("t_s,input_tokens,output_tokens\n{rows}").as_bytes());
    let stats = foretoken_traces::inspect(&TraceSpec::new(&path)).expect("reads");
    assert_eq!(stats.arrivals.expect("times").mean_rate, Some(2.0));
}
