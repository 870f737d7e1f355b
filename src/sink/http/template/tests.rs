//! Escapes, bounds and errors of templates.

mod recipes;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::core::wire::Entry;
use crate::sink::tests::item;

const ESCAPES: [Escape; 6] =
    [Escape::Slack, Escape::Discord, Escape::Markdown, Escape::Html, Escape::Text, Escape::None];

/// An entry with this name of its object.
fn named(name: &str) -> Item {
    let line = String::from_utf8(item(7).line.to_vec()).unwrap();
    let line = line.replace("\"name\":\"web\"", &format!("\"name\":{}", json!(name)));
    Item::new(Seq(7), EntryType::Modified, line.into())
}

fn made(source: &str, escape: Escape, item: &Item) -> Json {
    let template = Template::read(source, true, escape).unwrap_or_else(|error| panic!("{source}: {error}"));
    body_of(&template, item)
}

fn body_of(template: &Template, item: &Item) -> Json {
    serde_json::from_slice(&template.body(item).unwrap().unwrap()).unwrap()
}

fn read(escape: Escape) -> Template {
    Template::read(EVERYWHERE, true, escape).unwrap()
}

/// A template that has a value in every place of a JSON text.
const EVERYWHERE: &str = r#"{"inside": "a {{ name }} z", "value": {{ name }}, "\"{{ name }}": ["{{ name }}", {{ [name] }}],
    "quote\\": "\\{{ name }}\"", "object": {{ object.metadata }}, "text": "{{ object.metadata }}"}"#;

proptest! {
    #[test]
    fn whatever_the_text_the_body_is_json_and_says_it(name in any::<String>()) {
        static READ: LazyLock<Template> = LazyLock::new(|| read(Escape::None));
        let body = body_of(&READ, &named(&name));
        let members = body.as_object().unwrap();
        prop_assert_eq!(members.len(), 6);
        prop_assert_eq!(&body["inside"], &json!(format!("a {name} z")));
        prop_assert_eq!(&body["value"], &json!(name));
        prop_assert_eq!(&body[format!("\"{name}")], &json!([name, [name]]));
        prop_assert_eq!(&body["quote\\"], &json!(format!("\\{name}\"")));
        prop_assert_eq!(&body["object"]["name"], &json!(name));
        let within: Json = serde_json::from_str(body["text"].as_str().unwrap()).unwrap();
        prop_assert_eq!(&within["name"], &json!(name));
    }

    #[test]
    fn whatever_the_text_it_mentions_nobody_and_has_one_line(name in any::<String>(), at in 0_usize..4) {
        let name = name + ["<!here>", "@everyone", "<@U1>\n# x", "x@channel\u{202e}"][at];
        static READ: LazyLock<[Template; 6]> = LazyLock::new(|| ESCAPES.map(read));
        for (escape, template) in ESCAPES.into_iter().zip(&*READ) {
            let text = body_of(template, &named(&name))["value"].as_str().unwrap().to_owned();
            if escape == Escape::None {
                continue;
            }
            prop_assert!(!text.contains(crate::core::terminal::is_obeyed), "{:?}", text);
            let lower = text.to_lowercase();
            let is_html = matches!(escape, Escape::Slack | Escape::Html);
            prop_assert!(!is_html || !text.contains(['<', '>']), "{:?}", text);
            if matches!(escape, Escape::Slack | Escape::Discord | Escape::Markdown) {
                for mention in ["@everyone", "@here", "@channel", "<@", "<!", "<#"] {
                    prop_assert!(!lower.contains(mention), "{:?}: {:?}", escape, text);
                }
            }
        }
    }
}

#[test]
fn each_receiver_is_shown_what_was_written() {
    for (escape, text, shown) in [
        (Escape::Slack, "<!channel> & <@U123>", "&lt;!channel&gt; &amp; &lt;@\u{200b}U123&gt;"),
        (Escape::Slack, "jane@corp.example", "jane@corp.example"),
        (Escape::Slack, "jane@Channel", "jane@\u{200b}Channel"),
        (Escape::Slack, "system:serviceaccount:a:b", "system:serviceaccount:a:b"),
        (Escape::Discord, "@everyone *x*_y_", "@\u{200b}everyone \\*x\\*\\_y\\_"),
        (Escape::Discord, "[a](https://x.example)", "\\[a\\]\\(https://x.example\\)"),
        (Escape::Discord, "<@&1>", "<\u{200b}@\u{200b}&1\\>"),
        (
            Escape::Markdown,
            "[a](b) <at>all</at> # `c`",
            "\\[a\\]\\(b\\) \\<\u{200b}at\\>all\\<\u{200b}/at\\> \\# \\`c\\`",
        ),
        (Escape::Html, "<a href=\"x\">'&", "&lt;a href=&quot;x&quot;&gt;&#39;&amp;"),
        (Escape::Text, "a\nb\r\tc\u{202e}d\u{0}e\u{2028}f <!here>", "a b  c\u{fffd}d\u{fffd}e f <!here>"),
        (Escape::None, "a\nb\u{202e}<!here>@everyone", "a\nb\u{202e}<!here>@everyone"),
    ] {
        assert_eq!(escape.apply(text), shown, "{escape:?} {text:?}");
    }
}

#[test]
fn values_are_what_their_place_asks_for() {
    let body = |source: &str| {
        let template = Template::read(source, true, Escape::Slack).unwrap_or_else(|error| panic!("{source}: {error}"));
        let body = template.body(&named("<web>")).unwrap().unwrap();
        String::from_utf8(body.to_vec()).unwrap()
    };
    for (source, shown) in [
        (r#"{"a": {{ seq }}, "b": "{{ seq }}"}"#, r#"{"a": 7, "b": "7"}"#),
        (r#"["{{ object.nothing.there }}", {{ object.nothing.there }}]"#, r#"["", null]"#),
        (r#"[{{ name }}, {{ name | unescaped }}]"#, r#"["&lt;web&gt;", "<web>"]"#),
        (r#"["{{ name | unescaped }}"]"#, r#"["<web>"]"#),
        (r#"[{{ {'a<': [name]} }}]"#, r#"[{"a&lt;":["&lt;web&gt;"]}]"#),
        (r#"["{{ name ~ '<' }}"]"#, r#"["&lt;web&gt;&lt;"]"#),
        (r#"["{% set x = name %}{{ x | upper | truncate(4) }}"]"#, r#"["&lt;WE…"]"#),
        (r#"[{{ time | milliseconds }}, {{ time | seconds }}]"#, "[1795256100000, 1795256100]"),
        (r#"["?n={{ name | urlencode }}"]"#, r#"["?n=%3Cweb%3E"]"#),
        (
            r#"[{% for area in change.areas %}"{{ area }}"{% if not loop.last %},{% endif %}{% endfor %}]"#,
            r#"["spec"]"#,
        ),
        (r#"["{{ uid or resource }}", "{{ by | join(', ') }}"]"#, r#"["u", ""]"#),
        (r#"{# "a #}["{% raw %}{{ name }}{% endraw %}"]"#, r#"["{{ name }}"]"#),
    ] {
        assert_eq!(body(source), shown, "{source}");
    }
    let text = Template::read("a {{ name }}\nb", false, Escape::Slack).unwrap();
    assert_eq!(&text.body(&named("<\u{1}1\u{2}>")).unwrap().unwrap()[..], "a &lt;\u{fffd}1\u{fffd}&gt;\nb".as_bytes());
}

#[test]
fn a_mistake_is_one_sentence_with_its_line() {
    let many = format!("[\n{}\n\"\"]", "\"{{ name }}\",".repeat(4000));
    let doubled = format!("{{% set a = 'a' %}}\n{}[]", "{% set a = a ~ a %}".repeat(60));
    for (source, says) in [
        ("{\n\"a\": \"{{ name \"\n}", "line 3: syntax error: unexpected end of string"),
        ("[\n\"{{ name + }}\"]", "line 2: syntax error"),
        ("[\n{% if name %}1]", "line 2: syntax error"),
        ("[\n\"{{ nmae }}\"]", "line 2: unknown field nmae (did you mean name?)"),
        ("[\"name\",\n\"{{ cluster.nam }}\"]", "line 2: unknown field cluster.nam (did you mean cluster.name?)"),
        ("[\n\n\"{% if type == 'X' %}{{ q7 }}{% endif %}\"]", "line 3: unknown field q7"),
        ("[\n\"{{ name | uper }}\"]", "line 2: unknown filter uper"),
        ("[\n\"{% if type == 'X' %}{{ name | e }}{% endif %}\"]", "line 2: unknown filter e"),
        ("[\n\"{{ name | safe }}\"]", "line 2: unknown filter safe"),
        ("[\n{% include 'x' %}]", "line 2: syntax error: unknown statement include"),
        ("[\n{% macro a() %}{% endmacro %}]", "line 2: syntax error: unknown statement macro"),
        ("[\n{% filter upper %}a{% endfilter %}]", "line 2: the tag filter is not there"),
        ("[\n{%- autoescape false %}a{% endautoescape %}]", "line 2: the tag autoescape is not there"),
        ("[\n{% set x %}{{ name }}{% endset %}]", "line 2: a set without \"=\""),
        ("{\n\"a\": 1,\n\"b\": x{{ name }}\n}", "line 3: the body is not JSON here: expected value"),
        (
            "{\n{% for a in [1, 2] %}\n\"a\": 1\n{% endfor %}\n}",
            "line 3: the body is not JSON here: expected `,` or `}`",
        ),
        ("{{ name }}\nx", "line 2: the body is not JSON here: trailing characters"),
        ("{% if type == 'GAP' %}\n[1\n{% endif %}", "(tried with an entry of type GAP)"),
        // One that only an incident, an update or a digest shows.
        ("[1\n{% if incident.rule %},{% endif %}]", "the body is not JSON here"),
        ("[1\n{% if incident.reference %},{% endif %}]", "the body is not JSON here"),
        ("[1\n{% if incident.digest %},{% endif %}]", "the body is not JSON here"),
        // Not much more than there is fuel for.
        ("[\n{% for a in range(300) %}{% for b in range(300) %}{% endfor %}{% endfor %}]", "too many steps"),
        ("[\n{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}]", "too many steps"),
        (&doubled, "line 2: it takes"),
        ("[\n\"{{ 'a' * 10000000 }}\"]", "line 2: "),
        ("[\n\"{{ name + 1 }}\"]", "line 2: "),
        (&many, "line 2: the body has more than 256 KiB"),
    ] {
        let error = Template::read(source, true, Escape::None).unwrap_err();
        assert!(error.contains(says) && !error.contains(['\n', '\u{1}']), "{source}\n{error}");
    }
}

#[test]
fn samples_are_golden_entries_of_every_type() {
    let golden = include_str!("../../../../tests/golden/entries.jsonl");
    let mut types = BTreeSet::new();
    for line in SAMPLES.lines() {
        assert!(golden.lines().any(|known| known == line), "{line}");
        types.insert(Entry::parse(line.as_bytes()).unwrap().op.as_str());
    }
    assert_eq!(types, EntryType::ALL.iter().map(|t| t.as_str()).collect());
    // The hostile name is one in JSON.
    assert!(serde_json::from_str::<Json>(&format!("\"{HOSTILE}\"")).unwrap().as_str().unwrap().contains("@everyone"));
}

#[test]
fn what_makes_nothing_is_passed_over_and_what_is_heavy_has_no_object() {
    let template = Template::read("{% if type == 'GAP' %}[]{% endif %}\n", true, Escape::None).unwrap();
    assert_eq!(template.body(&item(7)).unwrap(), None);
    let line = String::from_utf8(item(7).line.to_vec()).unwrap();
    let with = |object: &str| {
        let line = line.replace(r#""spec":""#, &format!(r#""more":{object},"spec":""#));
        Item::new(Seq(7), EntryType::Modified, line.into())
    };
    let source = r#"[{{ object.metadata.name }}, {{ name }}, "{{ object.more }}"]"#;
    for (object, shown) in [
        (r#""\ud800\\ud800\udc00\ud83d\ude00""#.to_owned(), json!(["web", "web", "\u{fffd}\\ud800\u{fffd}\u{1f600}"])),
        (format!("[{}1]", "1,".repeat(200_000)), json!([null, "web", ""])),
        ("[".repeat(5000) + &"]".repeat(5000), json!([null, "web", ""])),
        ("1e400".to_owned(), json!([null, "web", ""])),
    ] {
        assert_eq!(made(source, Escape::None, &with(&object)), shown);
    }
}

/// The recipes of the book stay, whatever the names, below what the APIs take: 3,000 characters in a text of Slack's, 2,000 at
/// Discord, 255 and 1,024 in a key and a summary of PagerDuty's.
#[test]
fn the_longest_names_fit_into_the_recipes() {
    let page = include_str!("../../../../docs/messages.md");
    let long = |c: &str, count: usize| json!(c.repeat(count)).to_string();
    let change = |c: &str| {
        let text = long(c, 9000);
        let path = json!(format!("/spec/{}", c.repeat(9000)));
        let op = format!(r#"{{"op":"replace","path":{path},"value":{text},"was":{text}}}"#);
        format!(r#"{{"areas":["spec"],"patch":[{op},{op},{op},{op}],"managers":[]}}"#)
    };
    // Longer texts than an incident has.
    let begun = |c: &str| Incident {
        title: c.repeat(900),
        key: c.repeat(200),
        log: c.repeat(1200),
        users: vec![c.repeat(900)],
        count: u64::MAX,
        until: "2026-11-21T10:15:00.123456Z".to_owned(),
        ..Incident::default()
    };
    for (recipe, pointer, most, c) in [
        ("incidents", "/text", 4000, "&"),
        ("incidents", "/blocks/0/text/text", 3000, "&"),
        ("incidents", "/blocks/1/elements/0/text", 3000, "&"),
        ("rollouts", "/text", 4000, "&"),
        ("rollouts", "/blocks/0/text/text", 3000, "&"),
        ("rollouts", "/blocks/1/elements/0/text", 3000, "&"),
        ("discord-rollouts", "/content", 2000, "<"),
        ("discord-rollouts", "/content", 2000, "*"),
        ("pager", "/dedup_key", 255, "&"),
        ("pager", "/payload/summary", 1024, "&"),
        ("slack", "/text", 4000, "&"),
        ("slack", "/blocks/0/text/text", 3000, "&"),
        ("slack", "/blocks/1/elements/0/text", 3000, "&"),
        ("discord", "/content", 2000, "<"),
        ("discord", "/content", 2000, "*"),
        ("pagerduty", "/dedup_key", 255, "&"),
        ("pagerduty", "/payload/summary", 1024, "&"),
    ] {
        let (_, rest) = page.split_once(&format!("[[sink]]\nname = \"{recipe}\"")).unwrap();
        let (keys, body) = rest.split_once("body = '''\n").unwrap();
        let escape = keys.lines().find_map(|line| line.strip_prefix("escape = ")).unwrap();
        let escape: Escape = serde_json::from_str(escape).unwrap();
        let line = String::from_utf8(item(7).line.to_vec()).unwrap();
        let line = line
            .replace("\"name\":\"web\"", &format!("\"name\":{}", long(c, 253)))
            .replace("\"name\":\"prod\"", &format!("\"name\":{}", long(c, 900)))
            .replace("\"uid\":\"u\"", &format!("\"uid\":{}", long(c, 900)))
            .replace("\"namespace\":\"shop\"", &format!("\"namespace\":{}", long("n", 63)))
            .replace(r#"{"areas":["spec"],"patch":[],"managers":[]}"#, &change(c));
        let (body, line) = (body.split("'''").next().unwrap(), Bytes::from(line));
        let one = begun(c);
        let digest = Incident { digest: vec![one.clone(); NAMED], ..one.clone() };
        let about = if keys.contains("\nnotify = ") { [Some(&one), Some(&digest)] } else { [None, None] };
        for incident in about {
            let item = Item::new(Seq(7), EntryType::Modified, line.clone()).about(incident.cloned());
            let body = made(body, escape, &item);
            let length = body.pointer(pointer).and_then(Json::as_str).unwrap().chars().count();
            assert!(length <= most && length > most / 9, "{recipe} {pointer}: {length}");
        }
    }
}
