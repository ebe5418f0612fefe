"""What a stand-in keeps from one life to the next.

``storage`` has the folder of an nsqd, ``keeping`` what is kept of one topic in each dialect,
``diskqueue`` the files of an original nsqd.
"""
