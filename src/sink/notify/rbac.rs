//! Permissions of roles, and whether some cover others.

use std::collections::HashSet;

use serde_json::Value;

/// Comparisons of one permission with one rule, for each entry.
pub(super) const COMPARISONS: usize = 200_000;

/// Bytes of words that are compared at the price of one comparison.
const WORDS: usize = 256;

/// Returns a list of an object; nothing where there is none.
pub(super) fn list<'v>(object: Option<&'v Value>, key: &str) -> &'v [Value] {
    object.and_then(|object| object.get(key)).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A rule of a role, in which a word is found without a look at each.
struct Held<'v> {
    verbs: HashSet<&'v str>,
    groups: HashSet<&'v str>,
    resources: HashSet<&'v str>,
    /// Subresources of every resource: `scale` of `*/scale`.
    parts: HashSet<&'v str>,
    /// None for objects of every name.
    names: Option<HashSet<&'v str>>,
    urls: HashSet<&'v str>,
    /// What stands before a `*` in URLs.
    beginnings: Vec<&'v str>,
}

fn words<'v>(rule: &'v Value, key: &str) -> HashSet<&'v str> {
    list(Some(rule), key).iter().filter_map(Value::as_str).collect()
}

fn has(set: &HashSet<&str>, word: &str) -> bool {
    set.contains(word) || set.contains("*")
}

impl<'v> Held<'v> {
    fn of(rule: &'v Value) -> Self {
        let (resources, urls) = (words(rule, "resources"), words(rule, "nonResourceURLs"));
        Self {
            verbs: words(rule, "verbs"),
            groups: words(rule, "apiGroups"),
            parts: resources.iter().filter_map(|resource| resource.strip_prefix("*/")).collect(),
            resources,
            names: Some(words(rule, "resourceNames")).filter(|_| !list(Some(rule), "resourceNames").is_empty()),
            beginnings: urls.iter().filter_map(|url| url.strip_suffix('*')).collect(),
            urls,
        }
    }

    fn allows(&self, one: &Permission<'_>) -> bool {
        let is_named = |names: &HashSet<&str>| one.name.is_some_and(|name| names.contains(name));
        let is_part = || one.resource.split_once('/').is_some_and(|(_, part)| self.parts.contains(part));
        self.names.as_ref().is_none_or(is_named)
            && has(&self.verbs, one.verb)
            && has(&self.groups, one.group)
            && (has(&self.resources, one.resource) || is_part())
    }

    fn allows_url(&self, verb: &str, url: &str) -> bool {
        has(&self.verbs, verb)
            && (self.urls.contains(url) || self.beginnings.iter().any(|beginning| url.starts_with(beginning)))
    }
}

/// One thing that a rule allows.
struct Permission<'v> {
    verb: &'v str,
    group: &'v str,
    resource: &'v str,
    /// None for objects of every name.
    name: Option<&'v str>,
}

/// The rules of a role, and the number of comparisons that are left.
pub(super) struct Role<'v> {
    rules: Vec<Held<'v>>,
    left: usize,
}

impl<'v> Role<'v> {
    pub(super) fn of(rules: &'v [Value]) -> Self {
        Self { rules: rules.iter().map(Held::of).collect(), left: COMPARISONS }
    }

    /// The number of comparisons so far.
    #[cfg(test)]
    pub(super) const fn spent(&self) -> usize {
        COMPARISONS - self.left
    }

    /// Reports whether everything that a rule allows is allowed by these. A rule that takes too many comparisons is not.
    pub(super) fn covers(&mut self, rule: &Value) -> bool {
        let Held { verbs, groups, resources, names, urls, .. } = Held::of(rule);
        if !list(Some(rule), "nonResourceURLs").is_empty() {
            return verbs.iter().all(|verb| urls.iter().all(|url| self.covers_url(verb, url)));
        }
        // Where one list has nothing, the others are not gone through.
        if [&verbs, &groups, &resources].iter().any(|set| set.is_empty()) {
            return true;
        }
        let names: Vec<Option<&str>> = names.map_or_else(|| vec![None], |names| names.into_iter().map(Some).collect());
        for group in &groups {
            for resource in &resources {
                for verb in &verbs {
                    for name in &names {
                        if !self.covers_one(&Permission { verb, group, resource, name: *name }) {
                            return false;
                        }
                    }
                }
            }
        }
        true
    }

    fn covers_one(&mut self, one: &Permission<'_>) -> bool {
        let bytes = one.verb.len() + one.group.len() + one.resource.len() + one.name.map_or(0, str::len);
        let Self { rules, left } = self;
        rules.iter().any(|rule| spend(left, 1 + bytes / WORDS) && rule.allows(one))
    }

    fn covers_url(&mut self, verb: &str, url: &str) -> bool {
        let Self { rules, left } = self;
        let cost = |rule: &Held<'_>| (1 + rule.beginnings.len()) * (1 + (verb.len() + url.len()) / WORDS);
        rules.iter().any(|rule| spend(left, cost(rule)) && rule.allows_url(verb, url))
    }
}

/// Takes so many comparisons, or all that are left where they are fewer. Reports whether they were there.
fn spend(left: &mut usize, cost: usize) -> bool {
    let rest = left.checked_sub(cost);
    *left = rest.unwrap_or_default();
    rest.is_some()
}
