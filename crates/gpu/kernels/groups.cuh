// Words of 31-row groups, as WAH writes them.

static const u32 GROUP_ROWS = 31;
static const u32 FULL = 0x7FFFFFFFu;
// A fill, of zeros or of ones; below it the number of groups.
static const u32 FILL = 1u << 31;
static const u32 ONES = 1u << 30;
static const u32 COUNT = ONES - 1;
