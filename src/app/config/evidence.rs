//! The places that `[evidence]` names.

use crate::evidence::place::{Directory, Place};
use crate::evidence::settings::Settings;
use crate::sink::s3;

/// Opens the places. Nothing is connected yet.
///
/// # Errors
/// A sentence, where one can never work: such as a bucket in a build without the client.
pub fn places(settings: &Settings) -> Result<Vec<Place>, String> {
    let directory = settings.dir.clone().map(|dir| Place::Directory(Directory::new(dir)));
    let bucket = settings.s3.as_ref().map(|bucket| {
        let opened = s3::objects(bucket).map_err(|why| format!("[evidence.s3] cannot be used: {why}"));
        opened.map(Place::Bucket)
    });
    Ok(directory.into_iter().chain(bucket.transpose()?).collect())
}
