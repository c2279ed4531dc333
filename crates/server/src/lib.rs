//! The control plane: use cases (`service`), control loops (`loops`) and the doors to them (`http`).

pub mod serve;
