//! `[[watch]]`: what is watched.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::core::change::Ignore;
use crate::core::k8s::names::Spelling;
use crate::core::model::Resource;
use crate::core::spelling::kubernetes::{NamespacePattern, NamespaceText, ResourceText};

/// One selection of resources, with the scope in which they are watched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Watch")]
pub struct Settings {
    /// Resources as kubectl spells them, PLURAL[.GROUP]; "*" is all that can be listed and watched.
    #[schemars(with = "Vec<ResourceText>", length(min = 1))]
    pub resources: Vec<String>,
    /// Resources that the wildcards do not take.
    #[serde(default)]
    #[schemars(with = "Vec<ResourceText>")]
    pub exclude: Vec<String>,
    /// The namespaces; none means all.
    #[serde(default)]
    #[schemars(with = "Vec<NamespaceText>")]
    pub namespaces: Vec<String>,
    /// Namespaces that are left out, by name or by a pattern with * and ?.
    #[serde(default)]
    pub exclude_namespaces: Vec<NamespacePattern>,
    /// A Kubernetes label selector; empty takes every object.
    #[serde(default)]
    #[schemars(extend("format" = "label-selector"))]
    pub label_selector: String,
    /// A Kubernetes field selector; empty takes every object.
    #[serde(default)]
    #[schemars(extend("format" = "field-selector"))]
    pub field_selector: String,
    /// Treatment of the objects that the first list finds.
    #[serde(default)]
    pub first_list: FirstList,
    /// Presets (heartbeats, managed-fields, status, storage-rewrites, leader-election) and patterns of JSON pointers: a MODIFIED that
    /// touches nothing else is not emitted.
    #[serde(default)]
    pub ignore: Vec<Ignore>,
}

impl Settings {
    /// Reports whether it brings a resource, where the cluster serves that.
    #[must_use]
    pub fn may_bring(&self, resource: &Resource) -> bool {
        if !self.namespaces.is_empty() && !resource.namespaced {
            return false;
        }
        let is_it = |name: &String| {
            let spelling = Spelling::of(name);
            spelling.form(resource).is_some() && spelling.is_where(resource)
        };
        self.resources.iter().any(|name| match name.strip_prefix('*') {
            Some(group) => {
                let is_of_group = ["", ".*"].contains(&group) || group.strip_prefix('.') == Some(&resource.group);
                is_of_group && !self.exclude.iter().any(is_it)
            }
            None => is_it(name),
        })
    }
}

/// Treatment of the objects that the first list finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FirstList {
    /// They are ADDED, with evidence `listed`.
    #[default]
    Emit,
    /// They are only remembered.
    Silent,
}
