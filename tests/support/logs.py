"""Reading logs where only the log matters, and writing files of any form."""

from coterie.leakage.readers import read_log

PLATFORM_FORMS = {
    "columns of another name and order": "client_id,server_round\nbob,3\nann,3\nbob,4\ncas,4\n",
    "extra columns": "round,user,loss,note\n3,ann,0.5,\n3,bob,0.4,x\n4,bob,0.1,y\n4,cas,0.2,\n",
    "semicolons with decimal commas": "Round;Client-ID;Loss\n3;ann;0,5\n3;bob;0,4\n4;bob;0,1\n4;cas;0,2\n",
    "tabs": "cid\tfl.round\nann\t3\nbob\t3\nbob\t4\ncas\t4\n",
    "bars": "round|device\n3|ann\n3|bob\n4|bob\n4|cas\n",
    "blanks": "round user\n3 ann\n3 bob\n4 bob\n4 cas\n",
    "an Excel hint": "sep=;\nround;user\n3;ann\n3;bob\n4;bob\n4;cas\n",
    "comments": "# exported by a platform\n# twice\nround,user\n3,ann\n3,bob\n4,bob\n4,cas\n",
    "no header": "3,ann\n3,bob\n4,bob\n4,cas\n",
    "no header, user first": "ann,3\nbob,3\nbob,4\ncas,4\n",
    "unknown names": "a,b\n3,ann\n3,bob\n4,bob\n4,cas\n",
    "floats as rounds": "round,user\n3.0,ann\n3.0,bob\n4.0,bob\n4.0,cas\n",
    "names with a number": "round,user\nround-3,ann\nround-3,bob\nround-4,bob\nround-4,cas\n",
    "duplicates": "round,user\n3,ann\n3,bob\n3,ann\n4,bob\n4,cas\n4,cas\n",
    "rows that say who did not": "round,user,participated\n3,ann,1\n3,bob,1\n3,cas,0\n4,bob,1\n4,cas,1\n4,ann,0\n",
    "wide with True and False": "round,ann,bob,cas\n3,True,True,False\n4,False,True,True\n",
    "wide with x": "round,ann,bob,cas\n3,x,X,\n4,,x,x\n",
    "wide with other columns": "round,ann,bob,cas,loss\n3,1,1,0,0.25\n4,0,1,1,0.125\n",
    "wide with an index": ",ann,bob,cas\n3,1,1,0\n4,0,1,1\n",
    "a column for each round": "client,round_3,round_4\nann,1,0\nbob,1,1\ncas,0,1\n",
    "lists in cells": "round,clients\n3,\"['ann', 'bob']\"\n4,\"['bob', 'cas']\"\n",
    "lists with semicolons": "round,clients\n3,ann;bob\n4,bob;cas\n",
    "JSON records": '[{"round":3,"cid":"ann"},{"round":3,"cid":"bob"},\n'
    '{"round":4,"cid":"bob"},{"round":4,"cid":"cas"}]',
    "JSON lists by round": '{"3": ["ann", "bob"], "4": ["bob", "cas"]}',
    "JSON with an outer object": '{"run": 7, "rounds": [{"round": 3, "clients": ["ann", "bob"]},\n'
    ' {"round": 4, "clients": ["bob", "cas"]}]}',
    "JSON lines of records": '{"server_round":3,"client":"ann","ok":true}\n{"server_round":3,"client":"bob"}\n'
    '{"server_round":4,"client":"bob"}\n{"server_round":4,"client":"cas"}\n',
    "JSON lines of lists": '{"rnd":3,"participants":["ann","bob"],"loss":1.5}\n'
    '{"rnd":4,"participants":["bob","cas"]}\n',
    "JSON lines with nested users": '{"round":3,"clients":[{"id":"ann","n":5},{"id":"bob","n":6}]}\n'
    '{"round":4,"clients":[{"id":"bob","n":5},{"id":"cas","n":6}]}\n',
    "JSON columns": '{"round": [3, 3, 4, 4], "user": ["ann", "bob", "bob", "cas"]}',
}
"""The same log, ann and bob in round 3, bob and cas in round 4, as platforms may write it."""


def only_log(path, **options):
    """The log of a file, without what was understood of it."""
    return read_log(path, **options).log


def written(path, content):
    """Write text or bytes to a file, and return its path."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path
