//! What an evaluation may take, whatever the expression and the entry.

use super::*;

/// Numbers, texts and objects, each large enough for a loop over it to be dear where it is in another loop.
fn large() -> String {
    let list = |item: &dyn Fn(usize) -> String| (0..2_500).map(item).collect::<Vec<_>>().join(",");
    let numbers = list(&|n| n.to_string());
    let texts = list(&|n| format!("\"t{n}{}\"", "x".repeat(100)));
    let objects = list(&|n| format!("{{\"name\":\"n{n}\",\"labels\":{{\"a\":\"b\",\"c\":\"d\"}}}}"));
    let long = "ab".repeat(500_000);
    format!(
        "{{\"type\":\"ADDED\",\"name\":\"web\",\"object\":{{\"numbers\":[{numbers}],\"same\":[{numbers}],\"texts\":[{texts}],\
         \"objects\":[{objects}],\"long\":\"{long}\"}}}}"
    )
}

/// An object as large as etcd keeps it: Endpoints of 7,500 addresses.
fn endpoints() -> String {
    let address = |n: usize| {
        format!(
            "{{\"ip\":\"10.{}.{}.{}\",\"nodeName\":\"node-{n}\",\"targetRef\":{{\"kind\":\"Pod\",\"name\":\"web-{n}\",\"namespace\":\"shop\",\
             \"uid\":\"00000000-0000-4000-8000-{n:012}\"}}}}",
            n >> 16,
            n >> 8 & 255,
            n & 255
        )
    };
    let addresses = (0..7_500).map(address).collect::<Vec<_>>().join(",");
    let padding = "p".repeat(300_000);
    format!(
        "{{\"type\":\"MODIFIED\",\"kind\":\"Endpoints\",\"name\":\"web\",\"object\":{{\"metadata\":{{\"annotations\":{{\"a\":\"{padding}\"}}}},\
         \"subsets\":[{{\"addresses\":[{addresses}],\"ports\":[{{\"port\":80}}]}}]}}}}"
    )
}

fn repeated(first: &str, step: &str, times: usize) -> String {
    format!("{first}{}.size() > 0 && name != ''", step.repeat(times))
}

/// What takes too much whatever the entry.
fn too_much_alone() -> Vec<String> {
    let tens = "x+x+x+x+x+x+x+x+x+x";
    let values = "x,x,x,x,x,x,x,x,x,x";
    let members = "'a':x,'b':x,'c':x,'d':x,'e':x,'f':x,'g':x,'h':x,'i':x,'j':x";
    let list = "[1,2,3,4,5,6,7,8,9,0]";
    vec![
        // Sums of lists and of texts.
        repeated(&format!("[{list}]"), &format!(".map(x, {tens})"), 5),
        repeated("['0123456789012345678901234567890123456789']", &format!(".map(x, {tens})"), 6),
        repeated("[b'0123456789012345678901234567890123456789']", &format!(".map(x, {tens})"), 6),
        repeated("['0123456789']", ".map(x, x+':'+x+':'+x+':'+x+':'+x)", 11),
        // Literals that repeat a large value.
        repeated(&format!("[{list}]"), &format!(".map(x, [{values}])"), 6),
        repeated("[0]", &format!(".map(x, {{{members}}})"), 6),
        repeated("[0]", ".map(x, {'a':{'b':x,'c':x},'d':{'e':[x,x],'f':[x,x]}})", 8),
        repeated("[0]", ".map(x, [optional.of(x),optional.of([x,x,x,x]),optional.of({'a':x,'b':x})])", 8),
        repeated("['0123456789']", ".filter(x, true).map(x, true, [x,x,x,x,x,x,x,x,x,x])", 6),
        // Lists of lists, one loop after the other and one in the other.
        format!("[{list}].map(x, {tens}).map(x, {tens}).map(x, {tens}).all(x, x.all(y, x.size() >= y && x == x))"),
    ]
}

/// What takes too much for a large entry.
const TOO_MUCH: &[&str] = &[
    // A loop in another one.
    "object.numbers.all(a, object.numbers.all(b, a != b || a == b))",
    "object.numbers.exists(a, object.numbers.exists(b, a + b < 0))",
    "object.numbers.map(a, object.numbers.exists_one(b, a == b)).size() > 0",
    "object.numbers.filter(a, object.numbers.filter(b, b < a).size() > 0).size() > 0",
    "object.numbers.map(a, object.numbers.map(b, a < b, [a, b])).size() > 0",
    "object.numbers.all(a, object.numbers.all(b, a / 0 == b))",
    // Whole values are read in a loop.
    "object.numbers.all(a, object.numbers == object.same)",
    "object.numbers.all(a, {'a': object.numbers} == {'a': object.same})",
    "object.numbers.all(a, !(-1 in object.objects))",
    "object in object.numbers",
    "[object.objects] in object.numbers || [[object.objects]] in [[1], [2]]",
    "object.numbers.all(a, a in object.numbers)",
    "object.numbers.all(a, seq == object.objects || 1 != object.objects && object.objects == object.objects)",
    "object.numbers.all(a, !object.long.contains('c'))",
    "object.numbers.all(a, object.long.size() > a)",
    "object.numbers.all(a, size(object.long) > a)",
    "object.numbers.all(a, object.long.startsWith('ab') && object.long == object.long)",
    "object.numbers.all(a, bytes(object.long) != b'')",
    "object.numbers.exists(a, object.objects - a > 0)",
    "object.numbers.exists(a, object.objects + a > 0 || object.objects < a)",
    "object.numbers.exists(a, object.objects[object.objects] == a)",
    // Regular expressions over a long text, and many of them.
    "object.numbers.all(a, !object.long.matches('b+c'))",
    "object.numbers.all(a, !matches(object.long, 'b+c'))",
    "object.numbers.all(a, !name.matches('[a-z]{9}' + string(a)))",
    "object.long.matches('[ab]*a[ab]{200}c') || object.long.matches('[ab]*a[ab]{201}c') || object.long.matches('c{9}')",
    // Copies that are kept.
    "object.numbers.map(a, object.numbers).size() > 0",
    "object.numbers.map(a, object.?objects).size() > 0",
    "object.numbers.map(a, object.?objects.orValue([])).size() > 0",
    "object.numbers.map(a, optional.of(object.objects)).size() > 0",
    "object.numbers.map(a, object[?'objects'].hasValue() ? object.texts : []).size() > 0",
    "object.numbers.map(a, {object.long: a}).size() > 0",
    "object.numbers.map(a, {a: object.long + object.long}).size() > 0",
    "object.numbers.map(a, string(bytes(object.long))).size() > 0",
    "object.numbers.map(a, object.long + string(a)).size() > 0",
    "object.texts.map(a, a+a+a+a+a+a).map(a, a+a+a+a+a+a).map(a, a+a+a+a+a+a).size() > 0",
    "object.objects.map(a, [a,a,a,a,a,a]).map(a, [a,a,a,a,a,a]).map(a, [a,a,a,a,a,a]).size() > 0",
];

#[track_caller]
fn is_refused(filter: &str, error: &str) {
    assert!(error.contains("steps, so it must loop") || error.contains("MiB, so it must name"), "{filter}: {error}");
}

#[test]
fn what_takes_too_much_for_every_entry_is_refused_when_it_is_compiled() {
    for filter in too_much_alone() {
        match Filter::compile(&filter) {
            Err(error) => is_refused(&filter, &error.to_string()),
            Ok(filter) => panic!("{filter}: {:?}", filter.measured(b"{}")),
        }
    }
    // As it was found: two gigabytes.
    let map = ".map(x, x+x+x+x+x+x+x+x+x+x)";
    let found = format!("[[1,2,3,4,5,6,7,8,9,0]]{}.size() > 0 && name != \"\"", map.repeat(6));
    let error = wrong(&found);
    assert!(error.starts_with("line 1, column "), "{error}");
    is_refused(&found, &error);
}

#[test]
fn what_takes_too_much_for_an_entry_has_no_answer_for_it() {
    let entry = large();
    for text in TOO_MUCH {
        let filter = Filter::compile(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let (answer, cost) = filter.measured(entry.as_bytes());
        match answer {
            Err(error) => is_refused(text, &error.to_string()),
            Ok(answer) => panic!("{text}: {answer} {cost:?}"),
        }
        // A reader is told, and does not lose the entry silently.
        assert!(matches!(filter.selects(entry.as_bytes()), Err(FilterError::Budget(_))), "{text}");
        assert!(cost.steps <= MOST_STEPS && cost.bytes <= MOST_BYTES, "{text}: {cost:?}");
        // The next one begins with a budget of its own.
        assert_eq!(ask("name == 'web' && [1, 2].exists(x, x == 2)", &entry), Ok(true));
    }
}

#[test]
fn the_values_of_an_entry_are_bounded() {
    for (what, unit, times) in
        [("numbers", "1,", 700_000), ("lists", "[],", 700_000), ("objects", "{\"a\":1},", 200_000)]
    {
        let list = unit.repeat(times);
        let entry = format!("{{\"kind\":\"Odd\",\"object\":{{\"list\":[{}]}}}}", list.trim_end_matches(','));
        let error = ask("object.list.size() > 0", &entry).expect_err(what);
        is_refused(what, &error);
        // What is not named is not read.
        assert_eq!(ask("kind == 'Odd' && has(object.list)", &entry), Ok(true), "{what}");
    }
}

#[test]
fn a_filter_over_the_largest_object_has_an_answer() {
    let entry = endpoints();
    assert!(entry.len() > 1_400_000, "{}", entry.len());
    for (text, right) in [
        ("object.subsets.exists(s, s.addresses.exists(a, a.ip == '10.9.9.9'))", false),
        (
            "object.?subsets.orValue([]).exists(s, s.?addresses.orValue([]).exists(a, a.targetRef.?name.orValue('') == 'web-7499'))",
            true,
        ),
        (
            "object.subsets.all(s, s.addresses.all(a, a.targetRef.name.startsWith('web-') && a.nodeName.matches('^node-[0-9]+$')))",
            true,
        ),
        ("object.subsets.exists(s, s.addresses.exists(a, a.nodeName + '/' + a.ip == 'node-5/10.0.0.5'))", true),
        ("object.subsets.map(s, s.addresses.filter(a, a.ip.endsWith('.7')).size()) == [30]", true),
        ("object.subsets[0].addresses.map(a, a.ip).size() == 7500 && object != gap", true),
        (
            "object.subsets.exists(s, s.addresses.exists(a, a.ip == 'x') || s.addresses.exists(a, a.nodeName == 'x') \
             || s.addresses.exists(a, a.targetRef.name in ['x', 'y'])) || object.metadata.annotations.exists(a, a == 'b')",
            false,
        ),
    ] {
        let (answer, cost) = Filter::compile(text).unwrap().measured(entry.as_bytes());
        assert_eq!(answer, Ok(right), "{text}: {cost:?}");
        assert!(cost.steps <= MOST_STEPS / 4, "{text}: {cost:?}");
    }
}

#[test]
fn what_counts_changes_no_answer() {
    for yes in [
        "[1, 2] + [3] == [1, 2, 3] && 'a' + 'b' == 'ab' && b'a' + b'b' == b'ab' && 1 + 2 == 3 && 1.5 + 1.0 == 2.5",
        "([1] + {'a': 1}).size() == 2 && timestamp(time) + duration('1h') > timestamp(time)",
        "duration('1h') + duration('1m') == duration('61m') && 1u + 2u == 3u",
        "[1, 2, 3].map(x, x > 1, x + 1) == [3, 4] && [1, 2, 3].filter(x, x > 1) == [2, 3]",
        "[1, 2, 3].exists_one(x, x == 2) && ![1, 2, 2].exists_one(x, x == 2)",
        "1 == 1.0 && 1 in [1.0] && [1] in [['a'], [1]] && !(object.metadata in [1, 'a', object.spec]) && object.spec in [seq, object.spec]",
        "7 == seq && 3 == object.spec.replicas && 'b' != object.spec && [7] == [seq] && object.spec.replicas in [3]",
        "[1, 0].exists(x, 1 / x == 1) && [0, 1].exists(x, 1 / x == 1) && ![0, 2].all(x, 1 / x == 1)",
        "[[1], [2]].map(x, x.map(y, y + 1)) == [[2], [3]] && {'a': 1, 'b': 2}.all(k, k in {'a': 1, 'b': 2})",
        "object.?spec.?containers.orValue([]).map(c, c.?name.orValue('')) == ['a', 'b']",
        "optional.of([seq]).orValue([]) == [7] && !optional.none().hasValue() && [?object.?none, ?object.?spec].size() == 1",
        "matches(name, 'w.b') && name.matches('^web$') && ['web', 'x'].exists(x, x.matches('^w'))",
    ] {
        assert_eq!(ask(yes, ENTRY), Ok(true), "{yes}");
    }
    let answer = |filter: &str| ask(filter, ENTRY).unwrap_err();
    assert_eq!(answer("object.spec.replicas + name == name"), "\"+\" does not go with values of type int and string");
    assert_eq!(
        answer("object.spec.replicas.matches('x')"),
        "\"matches\" does not go with values of type int and string"
    );
    assert_eq!(
        answer("object.spec.replicas in object.spec.ratio"),
        "\"in\" does not go with values of type int and double"
    );
    assert_eq!(answer("name.matches('(' + name)"), "matches(...) fails");
    assert_eq!(answer("[0].all(x, 1 / x == 1)"), "division by zero");
}
