//! Returns memory to the system after a peak of RPCs (LIMIT-11): the runtime's tables that accompany the
//! endpoint's, and free pages that the allocator keeps.

use std::mem;

use super::Engine;

/// Minimum number of entries for which the queues of ports keep room.
const MIN_ROOM: usize = 64;

impl Engine {
    /// Shrinks the runtime's tables if the endpoint has shrunk its own.
    pub(crate) fn fit_tables(&mut self) {
        let room = self.endpoint.room();
        self.buffers.resize(room);
        if mem::replace(&mut self.shrink.room, room) <= room {
            return;
        }
        self.buffers.drain_pool();
        self.calls.open.shrink_to_fit();
        self.requests.readings.shrink_to_fit();
        self.calls.clients.iter_mut().for_each(|(_, client)| client.completions.shrink_to(MIN_ROOM));
        self.requests.ports.iter_mut().for_each(|(_, server)| server.queue.shrink_to(MIN_ROOM));
        self.shrink.trims = true;
        self.notify_progress();
    }

    /// Returns whether the allocator should return memory. The caller does so without the lock, since it
    /// takes milliseconds.
    pub(crate) fn take_trim(&mut self) -> bool {
        mem::take(&mut self.shrink.trims)
    }
}
