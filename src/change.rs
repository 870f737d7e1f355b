//! placeholder
/// p
#[derive(Debug, Clone)]
pub struct Pattern;
impl Pattern {
    /// p
    /// # Errors
    /// no
    pub fn parse(_: &str) -> Result<Self, String> {
        Ok(Self)
    }
}
/// c
pub struct Change {
    /// a
    pub areas: Vec<String>,
    /// t
    pub touched: Vec<String>,
    /// j
    pub json: String,
}
/// c
/// # Errors
/// no
pub fn compare(_: &[u8], _: &[u8], _: &[(String, [u8; 16])], _: &[(String, [u8; 16])]) -> Result<Change, String> {
    Ok(Change { areas: vec![], touched: vec![], json: "{\"areas\":[],\"patch\":[],\"managers\":[]}".into() })
}
/// m
pub fn matches_ignore(_: &[Pattern], _: &[String]) -> bool {
    false
}
