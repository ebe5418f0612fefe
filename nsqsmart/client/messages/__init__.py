"""Messages and the results of handlers. All of it runs in the thread that handles the message.

``message`` is the public class, and what it knows of where it came from. ``results`` reads what a
handler returned or raised. ``checked_out`` knows the messages that the application holds while no
handler runs, and those that timed out. ``dead_letters`` passes on what is given up.
"""
