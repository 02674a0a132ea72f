//! The state of the async driver task, as far as threads need it.

use homa_proto::Time;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TaskState {
    /// There is no task.
    #[default]
    Absent,
    /// The task is spawned but has not run yet.
    Starting,
    /// The task is running or runnable.
    Running,
    /// The task sleeps until `until`.
    Sleeping { until: Time },
    /// The task cannot run on this runtime.
    Unusable,
}

/// The state of the async driver task, as far as threads need it.
#[derive(Debug, Default)]
pub(crate) struct AsyncDriver {
    pub(super) state: TaskState,
    pub(super) sleep: SleepSpan,
}

/// The task's sleep, as recorded in the time trace.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SleepSpan {
    pub(super) since: Option<Time>,
    pub(super) notified: bool,
}

impl AsyncDriver {
    pub(crate) fn is_running(&self) -> bool {
        !matches!(self.state, TaskState::Absent | TaskState::Unusable)
    }

    pub(crate) fn sleeps_until(&self) -> Option<Time> {
        match self.state {
            TaskState::Sleeping { until } => Some(until),
            _ => None,
        }
    }

    /// Records that the task is being woken.
    pub(crate) fn notify(&mut self) {
        if let TaskState::Sleeping { .. } = self.state {
            self.state = TaskState::Running;
            self.sleep.notified = true;
        }
    }
}
