//! Facts of a version that are cached for the comparison with the next one.

use std::sync::Arc;

use crate::core::json;

/// Positions of the values of a version, and the owners that the comparison before it found. Copies share both.
#[derive(Clone, Debug)]
pub struct Shape {
    positions: json::Shape,
    owners: Option<Arc<Owners>>,
}

/// Owners of some leaves. They stay what they are while managedFields do: a heartbeat or a counter sets the same leaves each time,
/// and managedFields are a third of an object.
#[derive(Debug)]
pub(super) struct Owners {
    /// JSON pointers of the leaves.
    pub(super) set: Vec<String>,
    /// The owners, as an entry has them.
    pub(super) managers: Vec<u8>,
}

impl Owners {
    fn size(&self) -> usize {
        self.managers.capacity() + self.set.iter().map(|path| path.capacity() + size_of::<String>()).sum::<usize>()
    }
}

impl Shape {
    /// Parses the shape of a text; none if it is no JSON.
    #[must_use]
    pub fn of(text: &[u8]) -> Option<Self> {
        json::Shape::of(text).map(Self::from)
    }

    /// About how many bytes it takes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.positions.size() + self.owners.as_ref().map_or(0, |owners| owners.size())
    }

    pub(super) const fn positions(&self) -> &json::Shape {
        &self.positions
    }

    /// Returns the owners of exactly these leaves, if they are known.
    pub(super) fn owners_of(&self, set: &[&str]) -> Option<&Arc<Owners>> {
        self.owners.as_ref().filter(|owners| owners.set == set)
    }

    /// Returns the owners of whichever leaves are known.
    pub(super) const fn owners(&self) -> Option<&Arc<Owners>> {
        self.owners.as_ref()
    }

    /// Adds owners, which have to be right for this version.
    pub(super) fn with_owners(self, owners: Option<Arc<Owners>>) -> Self {
        Self { owners, ..self }
    }
}

impl From<json::Shape> for Shape {
    fn from(positions: json::Shape) -> Self {
        Self { positions, owners: None }
    }
}
