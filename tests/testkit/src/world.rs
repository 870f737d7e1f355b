//! What happens in the simulated cluster: few names, so that they come, change, go and come again.

use std::collections::BTreeMap;

use decklog::sim::{Object, Sim};

use crate::dice::Dice;

/// The resources that are written; `services` nobody watches.
pub const WATCHED: [&str; 3] = ["configmaps", "pods", WIDGETS];
/// A custom resource, which can go away.
pub const WIDGETS: &str = "widgets.example.com";
/// The namespaces that are written, the last of which no configuration names.
pub const NAMESPACES: [&str; 3] = ["shop", "pay", "web"];
/// How many names there are of a resource in a namespace.
const NAMES: usize = 7;

type Key = (&'static str, &'static str, usize);

/// What a writer knows of an object.
#[derive(Clone, Copy, Debug)]
struct Known {
    web: bool,
    finalizer: bool,
}

/// Everybody who writes into the cluster.
pub struct World {
    sim: Sim,
    dice: Dice,
    known: BTreeMap<Key, Known>,
    counter: u64,
}

impl World {
    pub fn new(sim: &Sim, seed: u64) -> Self {
        Self { sim: sim.clone(), dice: Dice::new(seed, "world"), known: BTreeMap::new(), counter: 0 }
    }

    /// The cluster is another one than before: looks at what there is.
    pub fn look_again(&mut self) {
        let sim = self.sim.clone();
        self.known.retain(|key, known| {
            let Ok(row) = sim.get(key.0, key.1, &name(key)) else { return false };
            let value = row.value();
            known.web = value["metadata"]["labels"]["tier"] == "web";
            known.finalizer = value["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
            true
        });
        for resource in WATCHED {
            for row in self.sim.objects(resource).unwrap_or_default() {
                let namespace = NAMESPACES.into_iter().find(|namespace| **namespace == *row.namespace);
                let number = row.name.strip_prefix("o-").and_then(|number| number.parse().ok());
                if let (Some(namespace), Some(number)) = (namespace, number) {
                    let value = row.value();
                    let web = value["metadata"]["labels"]["tier"] == "web";
                    let finalizer = value["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty());
                    self.known.insert((resource, namespace, number), Known { web, finalizer });
                }
            }
        }
    }

    /// One thing happens. What the cluster refuses, such as a write of what is not served, has not happened.
    pub fn step(&mut self) {
        let key: Key = (*self.dice.pick(&WATCHED), *self.dice.pick(&NAMESPACES), self.dice.roll(NAMES));
        let Some(known) = self.known.get(&key).copied() else {
            self.create(key);
            return;
        };
        match self.dice.roll(100) {
            0..=9 => self.delete(key),
            10..=16 => {
                self.delete(key);
                self.create(key);
            }
            17..=24 => self.replace(key, Known { web: !known.web, ..known }),
            25..=28 => self.replace(key, Known { finalizer: !known.finalizer, ..known }),
            29..=31 => self.expire(key.0),
            32..=35 => {
                // A write that says the same makes no revision.
                let same = self.sim.get(key.0, key.1, &name(&key)).and_then(|row| Object::parse(&row.bytes()));
                drop(same.and_then(|same| self.sim.replace(key.0, key.1, &name(&key), same)));
            }
            36..=39 => {
                self.counter += 1;
                let service = format!(r#"{{"metadata":{{"name":"s-{}","namespace":"{}"}}}}"#, self.counter, key.1);
                drop(Object::parse(service.as_bytes()).and_then(|service| self.sim.create("services", service)));
            }
            _ => self.replace(key, known),
        }
    }

    fn create(&mut self, key: Key) {
        let known = Known { web: self.dice.percent(60), finalizer: self.dice.percent(5) };
        let object = self.object(&key, known);
        if self.sim.create(key.0, object).is_ok() {
            self.known.insert(key, known);
        }
    }

    fn replace(&mut self, key: Key, known: Known) {
        let object = self.object(&key, known);
        if self.sim.replace(key.0, key.1, &name(&key), object).is_ok() {
            self.known.insert(key, known);
        }
        if self.sim.get(key.0, key.1, &name(&key)).is_err() {
            // The last finalizer went, or the resource.
            self.known.remove(&key);
        }
    }

    fn delete(&mut self, key: Key) {
        drop(self.sim.delete(key.0, key.1, &name(&key)));
        if self.sim.get(key.0, key.1, &name(&key)).is_err() {
            self.known.remove(&key);
        }
    }

    /// Several objects go in one revision.
    fn expire(&mut self, resource: &'static str) {
        let keys: Vec<Key> =
            self.known.iter().filter(|(key, k)| key.0 == resource && !k.finalizer).map(|(key, _)| *key).collect();
        let some: Vec<Key> = keys.into_iter().filter(|_| self.dice.percent(30)).take(4).collect();
        let names: Vec<(&str, String)> = some.iter().map(|key| (key.1, name(key))).collect();
        let names: Vec<(&str, &str)> = names.iter().map(|(namespace, name)| (*namespace, name.as_str())).collect();
        if !names.is_empty() && self.sim.expire_together(resource, &names).is_ok() {
            for key in some {
                self.known.remove(&key);
            }
        }
    }

    /// A new form of an object, with what a reader may get wrong in it.
    fn object(&mut self, key: &Key, known: Known) -> Object {
        self.counter += 1;
        let odd = *self.dice.pick(&[
            "1.10",
            "1e40",
            "123456789012345678901234567890",
            "-0",
            r#""é\u00e9\ud83d\ude00""#,
            r#"{"b":1,"a":[]}"#,
            r#"[[],{},null,true]"#,
            "null",
        ]);
        let part = if key.0 == "configmaps" { "data" } else { "spec" };
        let tier = if known.web { "web" } else { "db" };
        let finalizers = if known.finalizer { r#","finalizers":["example.com/hold"]"# } else { "" };
        let text = format!(
            r#"{{"metadata":{{"name":"{}","namespace":"{}","labels":{{"tier":"{tier}"}}{finalizers}}},"{part}":{{"n":{},"odd":{odd},"text":"{}"}},"status":{{"seen":{}}}}}"#,
            name(key),
            key.1,
            self.counter,
            "lorem ipsum ".repeat(self.dice.roll(12)),
            self.counter % 3,
        );
        Object::parse(text.as_bytes()).unwrap_or_default()
    }
}

fn name(key: &Key) -> String {
    format!("o-{}", key.2)
}
