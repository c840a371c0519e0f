"""`tocsin-ship`: follow the files that a framework writes and send their records on. No change to the training code.

`bookmarks` remember how far each log was sent; `tail` follows a log of lines, `document` a file that is rewritten as a whole,
`tensorboard` a folder of event files, `endpoint` a trainer's metrics endpoint (`fetch` asks, `prometheus` reads, `dialects`
names); `shipper` carries from them to a transport and moves the bookmarks only after the transport has confirmed; `cli` is the
command.
"""
