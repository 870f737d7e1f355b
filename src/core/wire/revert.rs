//! Versions along a change: the one before it, by its patch taken back from the one after it, and those between.

use serde_json::Value;

use super::{Change, Op};
use crate::core::json::pointer::unescape;

impl Change<'_> {
    /// Returns the version of the object before the change; none where the patch does not fit.
    #[must_use]
    pub fn before(&self, after: &Value) -> Option<Value> {
        let mut object = after.clone();
        for op in self.patch.iter().rev() {
            let was = op.was.map(|was| serde_json::from_str::<Value>(was.get())).transpose().ok()?;
            match &*op.op {
                "add" => drop(take(&mut object, &op.path)?),
                "remove" => insert(&mut object, &op.path, was?)?,
                "replace" => *at(&mut object, &op.path)? = was?,
                "move" => {
                    let moved = take(&mut object, &op.path)?;
                    insert(&mut object, op.from.as_deref()?, moved)?;
                }
                _ => return None,
            }
        }
        Some(object)
    }
}

impl Op<'_> {
    /// Applies the operation to a version of the object; none where it does not fit, and the version is no more to be used.
    #[must_use]
    pub fn apply(&self, object: &mut Value) -> Option<()> {
        let value = || serde_json::from_str::<Value>(self.value?.get()).ok();
        match &*self.op {
            "add" => insert(object, &self.path, value()?),
            "remove" => take(object, &self.path).map(drop),
            "replace" => at(object, &self.path).zip(value()).map(|(place, value)| *place = value),
            "move" => {
                let moved = take(object, self.from.as_deref()?)?;
                insert(object, &self.path, moved)
            }
            _ => None,
        }
    }
}

fn at<'v>(object: &'v mut Value, pointer: &str) -> Option<&'v mut Value> {
    object.pointer_mut(pointer)
}

/// Splits a pointer into that of the container and the name in it.
fn parts(pointer: &str) -> Option<(&str, String)> {
    let (container, name) = pointer.rsplit_once('/')?;
    Some((container, unescape(name)?.into_owned()))
}

fn take(object: &mut Value, pointer: &str) -> Option<Value> {
    if pointer.is_empty() {
        return Some(std::mem::take(object));
    }
    let (container, name) = parts(pointer)?;
    match at(object, container)? {
        Value::Object(members) => members.remove(&name),
        Value::Array(items) => {
            let place = if name == "-" { items.len().checked_sub(1)? } else { name.parse().ok()? };
            (place < items.len()).then(|| items.remove(place))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn insert(object: &mut Value, pointer: &str, value: Value) -> Option<()> {
    if pointer.is_empty() {
        *object = value;
        return Some(());
    }
    let (container, name) = parts(pointer)?;
    match at(object, container)? {
        Value::Object(members) => drop(members.insert(name, value)),
        Value::Array(items) => {
            let place = if name == "-" { items.len() } else { name.parse().ok()? };
            if place > items.len() {
                return None;
            }
            items.insert(place, value);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
    }
    Some(())
}
