//! Memory returns to the system after a peak of RPCs (LIMIT-11): that of the tables beside the endpoint's, and free
//! pages that the allocator keeps.

use std::mem;

use crate::runtime::engine::Engine;

/// Entries for which the queues of ports keep room.
const LEAST_ROOM: usize = 64;

/// How far the peak's memory has gone back.
#[derive(Debug, Default)]
pub(crate) struct ShrinkState {
    /// RPCs for which the endpoint's tables had room when they were last looked at.
    room: usize,
    /// The allocator may return memory to the system.
    trims: bool,
}

impl Engine {
    /// Makes the tables beside the endpoint's smaller where the endpoint has made its own smaller.
    pub(crate) fn fit_tables(&mut self) {
        let room = self.endpoint.room();
        self.buffers.fit(room);
        if mem::replace(&mut self.shrink.room, room) <= room {
            return;
        }
        self.buffers.drain_pool();
        self.calls.shrink_to_fit();
        self.readings.shrink_to_fit();
        self.clients.iter_mut().for_each(|(_, client)| client.completions.shrink_to(LEAST_ROOM));
        self.servers.iter_mut().for_each(|(_, server)| server.queue.shrink_to(LEAST_ROOM));
        self.shrink.trims = true;
        self.ring_progress();
    }

    /// Whether the allocator is to return memory, which then follows without the lock: it takes milliseconds.
    pub(crate) fn take_trim(&mut self) -> bool {
        mem::take(&mut self.shrink.trims)
    }
}
