/* The structs of allograft.h as this compiler lays them out, one line a field: for the Python
 * package's mirrors. */
#include <stdio.h>

#include "allograft.h"

#define STRUCT(type) printf("%s %zu\n", #type, sizeof(struct type))
#define FIELD(type, name)                                                \
    printf("%s.%s %zu %zu\n", #type, #name, offsetof(struct type, name), \
           sizeof(((struct type *)0)->name))

int main(void)
{
    STRUCT(allograft_range);
    FIELD(allograft_range, address);
    FIELD(allograft_range, bytes);
    STRUCT(allograft_stage_options);
    FIELD(allograft_stage_options, bytes);
    FIELD(allograft_stage_options, name);
    FIELD(allograft_stage_options, warmup);
    FIELD(allograft_stage_options, flags);
    FIELD(allograft_stage_options, mode);
    STRUCT(allograft_ring_options);
    FIELD(allograft_ring_options, bytes);
    FIELD(allograft_ring_options, device);
    FIELD(allograft_ring_options, depth);
    FIELD(allograft_ring_options, slot_bytes);
    FIELD(allograft_ring_options, flags);
    FIELD(allograft_ring_options, backend);
    STRUCT(allograft_ring_properties);
    FIELD(allograft_ring_properties, backend);
    FIELD(allograft_ring_properties, pinned);
    FIELD(allograft_ring_properties, async_submit);
    FIELD(allograft_ring_properties, timing);
    STRUCT(allograft_ring_record);
    FIELD(allograft_ring_record, sequence);
    FIELD(allograft_ring_record, submit_ns);
    FIELD(allograft_ring_record, bytes);
    FIELD(allograft_ring_record, copy_ms);
    FIELD(allograft_ring_record, slot);
    STRUCT(allograft_snapshot);
    FIELD(allograft_snapshot, bytes);
    FIELD(allograft_snapshot, allocations);
    FIELD(allograft_snapshot, frees);
    FIELD(allograft_snapshot, current_bytes);
    FIELD(allograft_snapshot, peak_bytes);
    FIELD(allograft_snapshot, refused);
    FIELD(allograft_snapshot, replay_operations);
    FIELD(allograft_snapshot, replay_withheld);
    FIELD(allograft_snapshot, replay_replayed);
    FIELD(allograft_snapshot, replay_launches);
    FIELD(allograft_snapshot, api_captures);
    FIELD(allograft_snapshot, api_replays);
    FIELD(allograft_snapshot, api_copies);
    FIELD(allograft_snapshot, api_copied_bytes);
    STRUCT(allograft_api);
    FIELD(allograft_api, version);
    FIELD(allograft_api, bytes);
    FIELD(allograft_api, last_error);
    return 0;
}
