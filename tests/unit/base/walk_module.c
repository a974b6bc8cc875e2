/* walk_module.c: a library that calls back, with a frame of ROOM bytes. */
int call_back(void (*function)(void));

int call_back(void (*function)(void))
{
    volatile char room[ROOM];

    room[0] = 1;
    function();
    return room[0];
}
