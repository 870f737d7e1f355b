//! Record of an entry in Kafka: a topic, a key, headers, and the line as it is.

use rdkafka::message::{Header, OwnedHeaders};

use crate::sink::{Item, LogPosition, Template};

/// The longest name that a topic can have.
const LONGEST_NAME: usize = 249;

/// Part of a key for a field that an entry does not have.
const NONE: &str = "_";

/// An entry as it goes to Kafka.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) topic: String,
    /// Key of the object, so that all of its entries are in one partition.
    pub(super) key: String,
    pub(super) id: String,
    pub(super) kind: String,
    /// The entry's place.
    pub(super) place: LogPosition,
    pub(super) line: bytes::Bytes,
}

impl Record {
    /// # Errors
    /// Why this entry can never be taken.
    pub(super) fn of(item: &Item, topic: &Template) -> Result<Self, String> {
        let entry = item.header().map_err(|error| format!("it is {error}"))?;
        let topic = topic.render(entry, clean);
        if topic.len() > LONGEST_NAME {
            return Err(format!("the name of its topic has {} bytes, and Kafka takes {LONGEST_NAME}", topic.len()));
        }
        let part = |part: Option<&str>| match part {
            None | Some("") => NONE.to_owned(),
            Some(part) => part.to_owned(),
        };
        let key = [Some(&*entry.resource), entry.namespace.as_deref(), entry.name.as_deref()].map(part).join("/");
        Ok(Self {
            topic,
            key,
            id: entry.id.to_string(),
            kind: entry.op.as_str().to_owned(),
            place: LogPosition::at(entry),
            line: item.line.clone(),
        })
    }

    /// Returns the headers that a consumer can read without parsing the entry.
    pub(super) fn headers(&self) -> OwnedHeaders {
        let seq = self.place.seq.to_string();
        let headers = [("id", &self.id), ("seq", &seq), ("epoch", &self.place.epoch), ("type", &self.kind)];
        headers.into_iter().fold(OwnedHeaders::new_with_capacity(4), |headers, (key, value)| {
            headers.insert(Header { key, value: Some(value.as_str()) })
        })
    }
}

/// Reports whether a text may be part of a topic's name.
pub(super) fn is_clean(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn clean(text: &str) -> String {
    text.chars().map(|c| if is_clean(c.encode_utf8(&mut [0; 4])) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use rdkafka::message::Headers;

    use super::*;
    use crate::core::model::EntryType;
    use crate::core::wire::tests::parsed;
    use crate::sink::tests::item;

    #[test]
    fn an_entry_is_read_once() {
        let (item, topic, before) = (item(7), "{resource}".parse().unwrap(), parsed());
        // As after an answer that was lost.
        for _ in 0..2 {
            assert_eq!(Record::of(&item, &topic).unwrap().place.seq, item.seq);
        }
        assert_eq!(parsed() - before, 1);
    }

    fn changed(from: &str, to: &str) -> Item {
        let item = item(7);
        let line = String::from_utf8(item.line.to_vec()).unwrap();
        assert!(line.contains(from), "{line}");
        Item { line: line.replacen(from, to, 1).into(), ..item }
    }

    #[test]
    fn an_entry_has_the_topic_key_and_headers_of_its_object() {
        let topic = "log.{cluster}.{resource}".parse::<Template>().unwrap();
        let record = Record::of(&item(7), &topic).unwrap();
        assert_eq!((record.topic.as_str(), record.key.as_str()), ("log.prod.deployments", "deployments/shop/web"));
        assert_eq!(record.line, item(7).line);
        let headers: Vec<(String, String)> = record
            .headers()
            .iter()
            .map(|h| (h.key.to_owned(), String::from_utf8(h.value.unwrap().to_vec()).unwrap()))
            .collect();
        let headers: Vec<(&str, &str)> = headers.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(headers, [("id", "u.7.MODIFIED"), ("seq", "7"), ("epoch", "e"), ("type", "MODIFIED")]);
    }

    #[test]
    fn what_no_topic_can_have_in_its_name_is_replaced() {
        let topic = "log.{cluster}".parse::<Template>().unwrap();
        let record = Record::of(&changed(r#""name":"prod""#, r#""name":"prod:eu 1/é""#), &topic).unwrap();
        assert_eq!(record.topic, "log.prod_eu_1__");
        let long = format!(r#""name":"{}""#, "x".repeat(300));
        let error = Record::of(&changed(r#""name":"prod""#, &long), &topic).unwrap_err();
        assert!(error.contains("249"), "{error}");
    }

    #[test]
    fn an_entry_without_namespace_or_name_has_a_key_all_the_same() {
        let topic = "log".parse::<Template>().unwrap();
        let record = Record::of(&changed(r#""namespace":"shop","#, ""), &topic).unwrap();
        assert_eq!(record.key, "deployments/_/web");
        let broken = Item::new(crate::core::model::Seq(1), EntryType::Gap, "{}".into());
        assert!(Record::of(&broken, &topic).unwrap_err().starts_with("it is "));
    }
}
