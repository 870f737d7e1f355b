//! The number of values that become nodes.

use super::MAX_DEPTH;
use crate::core::json::weight::{MANY, Weight};

/// Values of one object, or of what one patch took away, that become nodes: about 150 bytes each. A container that holds more
/// is kept as the JSON that it is.
pub(super) const NODES: usize = MANY / 4;

/// Members or elements that become nodes where those below them are too many.
const CHILDREN: usize = 10_000;

/// Below this depth such containers are not looked into.
const HEAVY_DEPTH: usize = 16;

/// Number of values that may still become nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    left: usize,
    /// All that is below the present value is paid for.
    pub(super) paid: bool,
}

impl Budget {
    pub(super) const fn of(nodes: usize) -> Self {
        Self { left: nodes, paid: false }
    }

    /// Pays for a container, wholly or for what stands in it alone. Returns whether there was enough left.
    pub(super) fn pay(&mut self, json: &str, depth: usize) -> bool {
        if depth >= MAX_DEPTH {
            return false;
        }
        if self.paid {
            return true;
        }
        let nodes = Weight::of(json.as_bytes(), self.left).nodes;
        if nodes <= self.left {
            (self.left, self.paid) = (self.left - nodes, true);
            return true;
        }
        let children = if depth < HEAVY_DEPTH { Weight::of(json.as_bytes(), usize::MAX).children } else { usize::MAX };
        let enough = children <= CHILDREN.min(self.left);
        if enough {
            self.left -= children;
        }
        enough
    }
}
