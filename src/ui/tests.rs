//! Turns of readers.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use super::{Access, Book, Books, MOST_READS, OF_ONE, Site};
use crate::journal::Journal;
use crate::model::Seq;

/// A disk that hangs is of one cluster, and so is the page that does not come; however many hang.
#[tokio::test]
async fn a_journal_that_hangs_takes_the_page_of_no_other() {
    let dirs = [(); 4].map(|()| tempfile::tempdir().unwrap());
    for dir in &dirs {
        let (journal, thread) = Journal::open(dir.path()).unwrap();
        drop(journal);
        thread.join().unwrap();
    }
    let books = dirs.each_ref().map(|dir| Arc::new(Book::new(dir.path().to_owned())));
    let mut site = Site::new(Books::One(Arc::clone(&books[0])), Access::Everybody, Vec::new());
    // Whoever waits for a turn of all gets it once it is clear that somebody hangs.
    site.hangs = Duration::from_millis(100);
    let (release, hung) = mpsc::channel::<()>();
    let hung = Arc::new(Mutex::new(hung));
    let [other, hanging @ ..] = &books;
    assert!(hanging.len() * OF_ONE > MOST_READS);
    let mut waiting: Vec<_> = hanging
        .iter()
        .flat_map(|book| [book; MOST_READS])
        .map(|book| {
            let hung = Arc::clone(&hung);
            Box::pin(site.read(book, move |_| {
                assert!(hung.lock().unwrap().recv().is_err());
                Ok(())
            }))
        })
        .collect();
    for read in &mut waiting {
        assert!(futures::poll!(read.as_mut()).is_pending());
    }
    let answered = site.read(other, |log| Ok(log.open()?.head()?)).await;
    drop(release);
    assert_eq!(answered, Ok(Seq(0)));
    for read in waiting {
        read.await.unwrap();
    }
}
