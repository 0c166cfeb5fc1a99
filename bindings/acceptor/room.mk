# opens and addresses, for a program that accepts channels: functions of a header
