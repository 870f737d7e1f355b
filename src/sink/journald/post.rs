//! One datagram of fields to journald, or a sealed file of memory where it is too long for that.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::Interest;
use tokio::net::UnixDatagram;

/// Sends the fields of one entry.
pub(super) async fn post(socket: &UnixDatagram, fields: &[u8]) -> io::Result<()> {
    let Err(error) = socket.send(fields).await else { return Ok(()) };
    if !matches!(Errno::from_io_error(&error), Some(Errno::MSGSIZE | Errno::NOBUFS)) {
        return Err(error);
    }
    let mut file = File::from(memfd_create("decklog-entry", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    file.write_all(fields)?;
    // journald reads it in its place only when nobody can change it any more.
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL)?;
    let descriptors = [file.as_fd()];
    let by_descriptor = || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut message = SendAncillaryBuffer::new(&mut space);
        assert!(message.push(SendAncillaryMessage::ScmRights(&descriptors)), "there is space for one descriptor");
        Ok(sendmsg(socket, &[IoSlice::new(&[])], &mut message, SendFlags::NOSIGNAL).map(drop)?)
    };
    socket.async_io(Interest::WRITABLE, by_descriptor).await
}
