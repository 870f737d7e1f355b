//! JSON as bytes: where values stand, members in their order, what strings say, pointers. Nothing here renders a value
//! again, and nothing knows what the JSON is about.

mod members;
pub(crate) mod pointer;
pub(crate) mod scan;
mod text;
pub(crate) mod tree;
pub(crate) mod weight;
mod word;

pub(crate) use members::Members;
pub use scan::one_line;
pub(crate) use text::Text;
pub use tree::Shape;
